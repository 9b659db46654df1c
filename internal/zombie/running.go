package zombie

// deadlineNotEnforced finds Jobs that should have failed by their own
// activeDeadlineSeconds.
func deadlineNotEnforced(f *facts) (Finding, bool) {
	deadline := f.Spec.ActiveDeadlineSeconds
	if !f.ours() || !f.started() || deadline == nil {
		return Finding{}, false
	}
	due := after(f.startTime(), *deadline)
	return f.grown(f.thresholds.DeadlineNotEnforced, due, DeadlineNotEnforced, "",
		"started at %s, and was to be ended %d s later", format(f.startTime()), *deadline)
}

// noActivePods finds Jobs whose Pods are gone and are not made again.
func noActivePods(f *facts) (Finding, bool) {
	s := &f.Status
	if !f.running() || s.Active != 0 || (s.Terminating != nil && *s.Terminating != 0) {
		return Finding{}, false
	}
	// A Job between two tries has no Pod either, however long ago it was started.
	since := latest(f.startTime(), f.observed())
	return f.grown(f.thresholds.NoActivePods, since, NoActivePods, "", "no Pod since %s; %d succeeded, %d failed", format(since), s.Succeeded, s.Failed)
}

// noReadyPods finds Jobs whose Pods do not get going: their image cannot be pulled, no
// node takes them, or they crash again and again.
func noReadyPods(f *facts) (Finding, bool) {
	s := &f.Status
	if !f.running() || s.Active <= 0 || s.Ready == nil || *s.Ready != 0 || s.Succeeded != 0 || s.Failed != 0 {
		return Finding{}, false
	}
	return f.grown(f.thresholds.NoReadyPods, f.startTime(), NoReadyPods, "",
		"started at %s; of %d active Pods none is ready, and none has ended", format(f.startTime()), s.Active)
}

// runningTooLong finds Jobs that nothing will ever end if they hang.
func runningTooLong(f *facts) (Finding, bool) {
	if !f.running() || f.Spec.ActiveDeadlineSeconds != nil {
		return Finding{}, false
	}
	return f.grown(f.thresholds.RunningTooLong, f.startTime(), RunningTooLong, "",
		"running since %s, without activeDeadlineSeconds", format(f.startTime()))
}
