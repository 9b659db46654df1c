package testbuilder

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// JobBuilder takes a Job through what the API server and the Job controller do to it.
// It changes the Job it was given.
type JobBuilder struct{ job *batchv1.Job }

// Job continues a Job that was planned or made before.
func Job(job *batchv1.Job) *JobBuilder { return &JobBuilder{job} }

// Obj is the Job.
func (b *JobBuilder) Obj() *batchv1.Job { return b.job }

// Created is the Job as the API server stores it.
func (b *JobBuilder) Created(uid types.UID, at time.Time) *JobBuilder {
	b.job.UID = uid
	b.job.CreationTimestamp = metav1.NewTime(at)
	return b
}

// Active is the Job with a Pod that runs since then.
func (b *JobBuilder) Active(since time.Time) *JobBuilder {
	b.started(since)
	b.job.Status.Active, b.job.Status.Ready = 1, new(int32(1))
	return b
}

// PodPending is the Job with a Pod that does not start.
func (b *JobBuilder) PodPending(since time.Time) *JobBuilder {
	b.started(since)
	b.job.Status.Active, b.job.Status.Ready = 1, new(int32)
	return b
}

func (b *JobBuilder) started(at time.Time) {
	b.job.Status.StartTime = new(metav1.NewTime(at))
}

// Complete is the Job that ended well.
func (b *JobBuilder) Complete(at time.Time) *JobBuilder {
	b.idle()
	b.job.Status.Succeeded = 1
	return b.Condition(batchv1.JobSuccessCriteriaMet, "", "", at).Condition(batchv1.JobComplete, "", "", at)
}

// Failed is the Job that ended badly.
func (b *JobBuilder) Failed(reason, message string, at time.Time) *JobBuilder {
	b.idle()
	b.job.Status.Failed = 1
	return b.Condition(batchv1.JobFailureTarget, reason, message, at).Condition(batchv1.JobFailed, reason, message, at)
}

// Suspended is the suspended Job, its Pods gone.
func (b *JobBuilder) Suspended(at time.Time) *JobBuilder {
	b.idle()
	b.job.Status.StartTime = nil
	b.job.Spec.Suspend = new(true)
	return b.Condition(batchv1.JobSuspended, "JobSuspended", "", at)
}

// Deleted is the Job that the garbage collector is about to remove.
func (b *JobBuilder) Deleted(at time.Time) *JobBuilder {
	b.job.DeletionTimestamp = new(metav1.NewTime(at))
	return b
}

// Condition adds a condition that is True.
func (b *JobBuilder) Condition(kind batchv1.JobConditionType, reason, message string, at time.Time) *JobBuilder {
	b.job.Status.Conditions = append(b.job.Status.Conditions, batchv1.JobCondition{
		Type: kind, Status: corev1.ConditionTrue, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(at),
	})
	return b
}

func (b *JobBuilder) idle() {
	b.job.Status.Active, b.job.Status.Ready = 0, new(int32)
}
