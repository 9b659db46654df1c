package session

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// summarise derives the phase, and the conditions but for those that were set on the way.
func (d *evaluation) summarise() {
	d.status.Phase = d.phase()
	d.dependencies()
	d.network()
	d.jobConditions()
	d.stuck()
	d.completed()
	d.ready()
}

// phase is where the session stands: by the open attempt's Job, or by how the last attempt
// ended.
func (d *evaluation) phase() v1alpha1.SessionPhase {
	switch {
	case d.status.Job != "" && d.status.StopTime != nil:
		return v1alpha1.SessionStopping
	case d.status.Job != "" && d.status.RunnerStartTime != nil:
		return v1alpha1.SessionRunning
	case d.status.Job != "" && d.status.JobUID != "":
		return v1alpha1.SessionCreating
	case d.status.Job != "":
		return v1alpha1.SessionPending
	}
	last := d.lastRun()
	switch {
	case last != nil && last.Outcome == v1alpha1.RunCompleted:
		return v1alpha1.SessionCompleted
	case last != nil && last.Outcome == v1alpha1.RunFailed:
		return v1alpha1.SessionFailed
	case d.status.StoppedReason != "":
		return v1alpha1.SessionStopped
	default:
		return v1alpha1.SessionPending
	}
}

func (d *evaluation) set(kind string, status metav1.ConditionStatus, reason, format string, values ...any) {
	const maxConditionMessage = 4096 // a status is kept small
	message := []rune(fmt.Sprintf(format, values...))
	meta.SetStatusCondition(&d.status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: string(message[:min(len(message), maxConditionMessage)]),
		ObservedGeneration: d.observation.Session.Generation, LastTransitionTime: d.now,
	})
}

func (d *evaluation) condition(kind string) *metav1.Condition {
	return meta.FindStatusCondition(d.status.Conditions, kind)
}

// dependencies sets DependenciesReady. What is known of a session that has ended stays.
func (d *evaluation) dependencies() {
	switch {
	case d.waits != nil && d.missing, d.waits != nil && d.waits.reason == v1alpha1.ReasonWorkspaceInUse:
		d.set(v1alpha1.ConditionDependenciesReady, metav1.ConditionFalse, d.waits.reason, "%s", d.waits.message)
	case d.status.Job != "":
		d.set(v1alpha1.ConditionDependenciesReady, metav1.ConditionTrue, v1alpha1.ReasonDependenciesReady, "")
	case d.condition(v1alpha1.ConditionDependenciesReady) == nil:
		d.set(v1alpha1.ConditionDependenciesReady, metav1.ConditionUnknown, v1alpha1.ReasonUnknown, "")
	}
}

// network sets NetworkRestricted.
func (d *evaluation) network() {
	there := d.observation.NetworkPolicy
	switch {
	case there == nil || !IsControlledBy(d.observation.Session, there):
		d.set(v1alpha1.ConditionNetworkRestricted, metav1.ConditionFalse, v1alpha1.ReasonNetworkPolicyNotFound, "there is no NetworkPolicy %s", NetworkPolicyName(d.observation.Session.Name))
	case d.observation.Runner != nil && !isNetworkPolicyApplied(there, buildNetworkPolicy(d.observation.Session, d.observation.Runner)):
		d.set(v1alpha1.ConditionNetworkRestricted, metav1.ConditionFalse, v1alpha1.ReasonNetworkPolicyDiffers, "NetworkPolicy %s is not as the SessionRunner says", there.Name)
	default:
		d.set(v1alpha1.ConditionNetworkRestricted, metav1.ConditionTrue, v1alpha1.ReasonNetworkPolicyApplied, "")
	}
}

// jobConditions sets JobCreated, PodScheduled and RunnerStarted. Those of a session that has
// ended tell of its last Job.
func (d *evaluation) jobConditions() {
	ended := d.status.Job == "" && (d.status.Phase == v1alpha1.SessionCompleted || d.status.Phase == v1alpha1.SessionFailed)
	if ended && d.condition(v1alpha1.ConditionJobCreated) != nil {
		return
	}
	d.jobCreated()
	d.podScheduled()
	d.runnerStarted()
}

func (d *evaluation) jobCreated() {
	switch {
	case d.status.JobUID != "":
		d.set(v1alpha1.ConditionJobCreated, metav1.ConditionTrue, v1alpha1.ReasonJobCreated, "Job %s", d.status.Job)
	case d.waits != nil && d.waits.reason != v1alpha1.ReasonForeignObject:
		d.set(v1alpha1.ConditionJobCreated, metav1.ConditionFalse, d.waits.reason, "%s", d.waits.message)
	case d.tries():
	default:
		d.set(v1alpha1.ConditionJobCreated, metav1.ConditionFalse, v1alpha1.ReasonJobNotCreated, "")
	}
}

// tries tells whether the plan is to try anew what a quota barred: until it has been tried,
// that stays as it is.
func (d *evaluation) tries() bool {
	was := d.condition(v1alpha1.ConditionJobCreated)
	return d.decision.CreateJob != nil && was != nil && was.Reason == v1alpha1.ReasonQuotaExceeded
}

func (d *evaluation) podScheduled() {
	if d.current == nil || d.pod == nil {
		if d.status.Job == "" || d.condition(v1alpha1.ConditionPodScheduled) == nil {
			d.set(v1alpha1.ConditionPodScheduled, metav1.ConditionFalse, v1alpha1.ReasonPodNotCreated, "")
		}
		return
	}
	if d.pod.Spec.NodeName != "" {
		d.set(v1alpha1.ConditionPodScheduled, metav1.ConditionTrue, v1alpha1.ReasonScheduled, "")
		return
	}
	message := ""
	if c := d.podCondition(corev1.PodScheduled, corev1.ConditionFalse); c != nil {
		message = formatReason(c.Reason, c.Message)
	}
	d.set(v1alpha1.ConditionPodScheduled, metav1.ConditionFalse, v1alpha1.ReasonUnscheduled, "%s", message)
}

func (d *evaluation) runnerStarted() {
	problem := d.startProblem()
	switch {
	case d.status.RunnerStartTime != nil:
		d.set(v1alpha1.ConditionRunnerStarted, metav1.ConditionTrue, v1alpha1.ReasonRunnerStarted, "")
	case problem != nil:
		d.set(v1alpha1.ConditionRunnerStarted, metav1.ConditionFalse, problem.reason, "%s", problem.message)
	default:
		d.set(v1alpha1.ConditionRunnerStarted, metav1.ConditionFalse, v1alpha1.ReasonRunnerNotStarted, "")
	}
}

// stuck sets StopStuck, which is there only once it has been True.
func (d *evaluation) stuck() {
	if d.status.StopTime != nil && !d.observation.Now.Before(d.stuckTime()) {
		name := "its Pod"
		if d.pod != nil {
			name = "Pod " + d.pod.Name
		}
		d.set(v1alpha1.ConditionStopStuck, metav1.ConditionTrue, v1alpha1.ReasonGracePeriodExceeded,
			"%s was told to end at %s and is still there; its node may be gone", name, d.status.StopTime.UTC().Format("2006-01-02T15:04:05Z"))
		return
	}
	if d.condition(v1alpha1.ConditionStopStuck) != nil {
		d.set(v1alpha1.ConditionStopStuck, metav1.ConditionFalse, v1alpha1.ReasonPodTerminated, "")
	}
}

// completed sets Completed.
func (d *evaluation) completed() {
	status, reason, message := metav1.ConditionFalse, d.why().reason, d.why().message
	if d.status.Phase == v1alpha1.SessionCompleted {
		status = metav1.ConditionTrue
	}
	d.set(v1alpha1.ConditionCompleted, status, reason, "%s", message)
}

// ready sets Ready.
func (d *evaluation) ready() {
	status := metav1.ConditionFalse
	if d.status.Phase == v1alpha1.SessionCompleted || d.status.Phase == v1alpha1.SessionRunning {
		status = metav1.ConditionTrue
	}
	d.set(v1alpha1.ConditionReady, status, d.why().reason, "%s", d.why().message)
}

// why is the reason of the phase.
func (d *evaluation) why() problem {
	last := d.lastRun()
	switch d.status.Phase {
	case v1alpha1.SessionCompleted, v1alpha1.SessionFailed:
		return problem{last.Reason, last.Message}
	case v1alpha1.SessionRunning:
		return problem{v1alpha1.ReasonRunning, ""}
	case v1alpha1.SessionStopping:
		return problem{v1alpha1.ReasonStopping, string(d.status.StoppedReason)}
	case v1alpha1.SessionStopped:
		return problem{v1alpha1.ReasonStopped, string(d.status.StoppedReason)}
	case v1alpha1.SessionCreating:
		if start := d.startProblem(); start != nil {
			return *start
		}
		return problem{v1alpha1.ReasonCreating, ""}
	}
	if d.waits != nil {
		return *d.waits
	}
	return problem{v1alpha1.ReasonWaiting, ""}
}
