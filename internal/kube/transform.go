package kube

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// DropJobTemplate is a cache transform that removes what no decision reads and most of a Job consists
// of: its Pod template, Pod failure policy and managed fields. Jobs are created, patched and deleted, never
// updated whole, so no write misses them.
func DropJobTemplate(object any) (any, error) {
	if job, is := object.(*batchv1.Job); is {
		job.Spec.Template = corev1.PodTemplateSpec{}
		job.Spec.PodFailurePolicy = nil
		job.ManagedFields = nil
	}
	return object, nil
}
