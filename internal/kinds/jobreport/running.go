package jobreport

import (
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// checkDeadlineNotEnforced finds Jobs that their activeDeadlineSeconds should have failed.
func checkDeadlineNotEnforced(f *jobFacts) (Finding, bool) {
	deadline := f.Spec.ActiveDeadlineSeconds
	if !f.isExpectedToProgress() || !f.isStarted() || deadline == nil {
		return Finding{}, false
	}
	return f.findingByAge(addSeconds(f.startTime(), *deadline), ReasonDeadlineNotEnforced, "",
		"started at %s and did not fail after its deadline of %d s", formatTime(f.startTime()), *deadline)
}

// checkNoActivePods finds Jobs whose Pods disappeared and are not recreated.
func checkNoActivePods(f *jobFacts) (Finding, bool) {
	s := &f.Status
	if !f.isExpectedToHavePods() || s.Active != 0 || (s.Terminating != nil && *s.Terminating != 0) {
		return Finding{}, false
	}
	// A Job between two Pods has none either, however long ago it started.
	since := f.podCountsSince()
	return f.findingByAge(since, ReasonNoActivePods, "",
		"no Pods since %s; %d succeeded, %d failed", formatTime(since), s.Succeeded, s.Failed)
}

// checkNoReadyPods finds Jobs whose Pods do not become ready: their image cannot be pulled, they
// cannot be scheduled, or they crash repeatedly.
func checkNoReadyPods(f *jobFacts) (Finding, bool) {
	s := &f.Status
	if !f.isExpectedToHavePods() || s.Active <= 0 || s.Ready == nil || *s.Ready != 0 {
		return Finding{}, false
	}
	// A Job whose Pod was evicted or whose container restarts has none either, however long ago
	// it started.
	since := f.podCountsSince()
	return f.findingByAge(since, ReasonNoReadyPods, "",
		"none of %d active Pods is ready since %s; %d succeeded, %d failed", s.Active, formatTime(since), s.Succeeded, s.Failed)
}

// podCountsSince returns the time since which the numbers of Pods in the status are what they are.
// It is zero, which means unknown, if managedFields do not state the last change of the status.
func (f *jobFacts) podCountsSince() time.Time {
	changed := f.lastStatusUpdateTime()
	if changed.IsZero() {
		return time.Time{}
	}
	return laterTime(f.startTime(), changed)
}

// checkRunningTooLong finds Jobs that run forever if they hang.
func checkRunningTooLong(f *jobFacts) (Finding, bool) {
	if !f.isExpectedToHavePods() || f.Spec.ActiveDeadlineSeconds != nil {
		return Finding{}, false
	}
	limit, stated, err := runningLimit(f.Job)
	if stated {
		return f.checkStatedRunningLimit(limit)
	}
	remark := ""
	if err != nil {
		remark = "; the annotation " + v1alpha1.AnnotationReportRunningTooLong + " is ignored: " + err.Error()
	}
	return f.findingByAge(f.startTime(), ReasonRunningTooLong, "",
		"running since %s without activeDeadlineSeconds%s", formatTime(f.startTime()), remark)
}

// checkStatedRunningLimit checks a Job that states how long it may run. After that time somebody
// should examine it, but the Job is known to run long, so it is never a zombie.
func (f *jobFacts) checkStatedRunningLimit(limit time.Duration) (Finding, bool) {
	at := *f
	at.threshold = Threshold{Suspicious: limit}
	if finding, found := at.findingByAge(f.startTime(), ReasonRunningTooLong, "",
		"running since %s, longer than the %s of its annotation %s", formatTime(f.startTime()), FormatDuration(limit), v1alpha1.AnnotationReportRunningTooLong); found {
		return finding, true
	}
	if _, found := f.findingByAge(f.startTime(), ReasonRunningTooLong, "", ""); found {
		return Finding{Category: CategoryIgnored}, true
	}
	return Finding{}, false
}
