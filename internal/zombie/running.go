package zombie

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
	since := laterTime(f.startTime(), f.lastStatusUpdateTime())
	return f.findingByAge(since, ReasonNoActivePods, "",
		"no Pods since %s; %d succeeded, %d failed", formatTime(since), s.Succeeded, s.Failed)
}

// checkNoReadyPods finds Jobs whose Pods never become ready: their image cannot be pulled, they
// cannot be scheduled, or they crash repeatedly.
func checkNoReadyPods(f *jobFacts) (Finding, bool) {
	s := &f.Status
	if !f.isExpectedToHavePods() || s.Active <= 0 || s.Ready == nil || *s.Ready != 0 || s.Succeeded != 0 || s.Failed != 0 {
		return Finding{}, false
	}
	return f.findingByAge(f.startTime(), ReasonNoReadyPods, "",
		"started at %s; none of %d active Pods is ready, and none has finished", formatTime(f.startTime()), s.Active)
}

// checkRunningTooLong finds Jobs that run forever if they hang.
func checkRunningTooLong(f *jobFacts) (Finding, bool) {
	if !f.isExpectedToHavePods() || f.Spec.ActiveDeadlineSeconds != nil {
		return Finding{}, false
	}
	return f.findingByAge(f.startTime(), ReasonRunningTooLong, "",
		"running since %s without activeDeadlineSeconds", formatTime(f.startTime()))
}
