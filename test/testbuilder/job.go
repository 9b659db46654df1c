package testbuilder

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// JobBuilder changes a Job as the API server and the Job controller do. It modifies the Job that it
// was created with.
type JobBuilder struct{ job *batchv1.Job }

// Job returns a builder for an existing Job.
func Job(job *batchv1.Job) *JobBuilder { return &JobBuilder{job} }

// Obj returns the Job.
func (b *JobBuilder) Obj() *batchv1.Job { return b.job }

// Created sets the fields that the API server sets when the Job is created.
func (b *JobBuilder) Created(uid types.UID, at time.Time) *JobBuilder {
	b.job.UID = uid
	b.job.CreationTimestamp = metav1.NewTime(at)
	return b
}

// Active adds a Pod that is running since then.
func (b *JobBuilder) Active(since time.Time) *JobBuilder {
	b.PodPending(since).job.Status.Ready = new(int32(1))
	return b
}

// PodPending adds a Pod that does not start.
func (b *JobBuilder) PodPending(since time.Time) *JobBuilder {
	b.job.Status.StartTime = new(metav1.NewTime(since))
	b.job.Status.Active, b.job.Status.Ready = 1, new(int32)
	return b
}

// Complete makes the Job succeed.
func (b *JobBuilder) Complete(at time.Time) *JobBuilder {
	b.setNoActivePods()
	b.job.Status.Succeeded = 1
	return b.Condition(batchv1.JobSuccessCriteriaMet, "", "", at).Condition(batchv1.JobComplete, "", "", at)
}

// Failed makes the Job fail.
func (b *JobBuilder) Failed(reason, message string, at time.Time) *JobBuilder {
	b.setNoActivePods()
	b.job.Status.Failed = 1
	return b.Condition(batchv1.JobFailureTarget, reason, message, at).Condition(batchv1.JobFailed, reason, message, at)
}

// Suspended suspends the Job and removes its Pods.
func (b *JobBuilder) Suspended(at time.Time) *JobBuilder {
	b.setNoActivePods()
	b.job.Status.StartTime = nil
	b.job.Spec.Suspend = new(true)
	return b.Condition(batchv1.JobSuspended, "JobSuspended", "", at)
}

// Deleted marks the Job as deleted.
func (b *JobBuilder) Deleted(at time.Time) *JobBuilder {
	b.job.DeletionTimestamp = new(metav1.NewTime(at))
	return b
}

// Condition adds a True condition.
func (b *JobBuilder) Condition(kind batchv1.JobConditionType, reason, message string, at time.Time) *JobBuilder {
	b.job.Status.Conditions = append(b.job.Status.Conditions, batchv1.JobCondition{
		Type: kind, Status: corev1.ConditionTrue, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(at),
	})
	return b
}

func (b *JobBuilder) setNoActivePods() {
	b.job.Status.Active, b.job.Status.Ready = 0, new(int32)
}
