package zombie

// checkDeadlineNotEnforced finds Jobs that should have failed by their own
// activeDeadlineSeconds.
func checkDeadlineNotEnforced(f *jobFacts) (Finding, bool) {
	deadline := f.Spec.ActiveDeadlineSeconds
	if !f.isExpectedToProgress() || !f.isStarted() || deadline == nil {
		return Finding{}, false
	}
	due := addSeconds(f.startTime(), *deadline)
	return f.findingByAge(f.thresholds.DeadlineNotEnforced, due, ReasonDeadlineNotEnforced, "",
		"started at %s, and was to be ended %d s later", formatTime(f.startTime()), *deadline)
}

// checkNoActivePods finds Jobs whose Pods are gone and are not made again.
func checkNoActivePods(f *jobFacts) (Finding, bool) {
	s := &f.Status
	if !f.isExpectedToHavePods() || s.Active != 0 || (s.Terminating != nil && *s.Terminating != 0) {
		return Finding{}, false
	}
	// A Job between two tries has no Pod either, however long ago it was started.
	since := laterTime(f.startTime(), f.lastStatusUpdateTime())
	return f.findingByAge(f.thresholds.NoActivePods, since, ReasonNoActivePods, "", "no Pod since %s; %d succeeded, %d failed", formatTime(since), s.Succeeded, s.Failed)
}

// checkNoReadyPods finds Jobs whose Pods do not get going: their image cannot be pulled, no
// node takes them, or they crash again and again.
func checkNoReadyPods(f *jobFacts) (Finding, bool) {
	s := &f.Status
	if !f.isExpectedToHavePods() || s.Active <= 0 || s.Ready == nil || *s.Ready != 0 || s.Succeeded != 0 || s.Failed != 0 {
		return Finding{}, false
	}
	return f.findingByAge(f.thresholds.NoReadyPods, f.startTime(), ReasonNoReadyPods, "",
		"started at %s; of %d active Pods none is ready, and none has ended", formatTime(f.startTime()), s.Active)
}

// checkRunningTooLong finds Jobs that nothing will ever end if they hang.
func checkRunningTooLong(f *jobFacts) (Finding, bool) {
	if !f.isExpectedToHavePods() || f.Spec.ActiveDeadlineSeconds != nil {
		return Finding{}, false
	}
	return f.findingByAge(f.thresholds.RunningTooLong, f.startTime(), ReasonRunningTooLong, "",
		"running since %s, without activeDeadlineSeconds", formatTime(f.startTime()))
}
