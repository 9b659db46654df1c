package agenticsession

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

const endReasonSuspended = "suspended"

// newSimulatedPod returns a Pod of a Job that has not started its runner.
func (w *simulation) newSimulatedPod(job *batchv1.Job) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: job.Name + "-x", UID: w.newUID("pod"), CreationTimestamp: metav1.NewTime(w.now.Truncate(time.Second)),
		OwnerReferences: []metav1.OwnerReference{{UID: job.UID, Controller: new(true)}},
	}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: v1alpha1.RunnerContainer}}
	return pod
}

// holdInQueue suspends a Job that is being created, as Kueue's webhook does.
func (w *simulation) holdInQueue(j *simulatedJob) {
	j.job.Spec.Suspend, j.job.Status.StartTime = new(true), nil
	w.setSuspended(j, corev1.ConditionTrue)
	j.isHeld = true
}

func (w *simulation) setSuspended(j *simulatedJob, status corev1.ConditionStatus) {
	j.job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobSuspended, Status: status, LastTransitionTime: metav1.NewTime(w.now.Truncate(time.Second))}}
	j.job.Generation++
}

// preempt suspends a running Job. Its Pod ends after a while.
func (w *simulation) preempt(j *simulatedJob) {
	w.logf("%s is preempted", j.job.Name)
	w.counts["preemption"]++
	w.terminatePod(j, endReasonSuspended)
	j.job.Spec.Suspend, j.job.Status.StartTime = new(true), nil
	j.job.Status.Active, j.job.Status.Terminating = 0, new(int32(1))
	j.pod.DeletionTimestamp, j.pod.DeletionGracePeriodSeconds = new(metav1.NewTime(w.now.Add(gracePeriod).Truncate(time.Second))), new(int64(GracePeriodSeconds))
	w.setSuspended(j, corev1.ConditionTrue)
}

// endSuspendedPod removes the Pod of a suspended Job. The operator may remember it as it was last observed.
func (w *simulation) endSuspendedPod(j *simulatedJob) {
	j.pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: 143, StartedAt: metav1.NewTime(j.startTime.Truncate(time.Second)), FinishedAt: metav1.NewTime(w.now.Truncate(time.Second)),
	}}
	j.pod.Status.Phase = corev1.PodFailed
	w.deletedPod = j.pod.DeepCopy()
	j.isHeld, j.endReason = true, ""
	j.terminationTime, j.startTime, j.renewedTime, j.overLimitTime = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	j.job.Status.Terminating = new(int32(0))
	j.job.Generation++
}

// advanceQueue admits a held Job, or preempts a running one. It reports whether the Job is held.
func (w *simulation) advanceQueue(j *simulatedJob) bool {
	switch {
	case j.endReason == endReasonSuspended && j.job.DeletionTimestamp != nil:
		j.endReason = "deleted"
	case j.isHeld && j.terminationTime.IsZero() && (w.faultsDisabled || w.chance(20)):
		w.logf("%s is admitted", j.job.Name)
		j.isHeld, j.job.Spec.Suspend = false, new(false)
		j.job.Status.StartTime, j.job.Status.Active = new(metav1.NewTime(w.now.Truncate(time.Second))), 1
		j.pod = w.newSimulatedPod(j.job)
		w.setSuspended(j, corev1.ConditionFalse)
	case w.hasQueue && !j.isHeld && j.isRunnerRunning() && j.terminationTime.IsZero() && !w.faultsDisabled && w.chance(10):
		w.preempt(j)
	}
	return j.isHeld
}
