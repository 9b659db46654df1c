package plugin

import (
	"github.com/spf13/cobra"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// newSuspendSequenceCommand is `kubectl yardmaster seq suspend`.
func newSuspendSequenceCommand(env *environment) *cobra.Command {
	return newChangeCommand(env, specChange[*v1alpha1.SequentialJob]{
		kind: sequentialJobKind(), verb: "suspend", short: "Suspend SequentialJobs",
		long: "Suspend SequentialJobs. With suspendPolicy AfterCurrent, the running step finishes first. " +
			"With Immediate, it is stopped, and starts over on resume.",
		apply: suspendSequence, overwrite: true,
	})
}

func suspendSequence(sj *v1alpha1.SequentialJob) (message string, changed bool) {
	message, changed = "is already suspended", !sj.Spec.Suspend
	if changed {
		message = "suspended"
	}
	sj.Spec.Suspend = true
	if isRunFinished(sj) {
		message += "; its run has finished, and the next run will wait until it is resumed"
	}
	return message, changed
}

// newResumeSequenceCommand is `kubectl yardmaster seq resume`.
func newResumeSequenceCommand(env *environment) *cobra.Command {
	return newChangeCommand(env, specChange[*v1alpha1.SequentialJob]{
		kind: sequentialJobKind(), verb: "resume", short: "Resume SequentialJobs", long: "Resume suspended SequentialJobs.",
		apply: resumeSequence, overwrite: true,
	})
}

func resumeSequence(sj *v1alpha1.SequentialJob) (message string, changed bool) {
	if !sj.Spec.Suspend {
		return "is not suspended", false
	}
	sj.Spec.Suspend = false
	return "resumed", true
}
