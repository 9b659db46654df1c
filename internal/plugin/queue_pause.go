package plugin

import (
	"github.com/spf13/cobra"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// newPauseQueueCommand is `kubectl yardmaster queue pause`.
func newPauseQueueCommand(env *environment) *cobra.Command {
	return newChangeCommand(env, specChange[*v1alpha1.Queue]{
		kind: queueKind(), verb: "pause", short: "Pause Queues",
		long:  "Pause Queues. Workers receive no more messages and finish those in flight. Producers can still send.",
		apply: setPaused(true, "paused", "is already paused"),
	})
}

// newResumeQueueCommand is `kubectl yardmaster queue resume`.
func newResumeQueueCommand(env *environment) *cobra.Command {
	return newChangeCommand(env, specChange[*v1alpha1.Queue]{
		kind: queueKind(), verb: "resume", short: "Resume Queues", long: "Resume paused Queues: workers receive messages again.",
		apply: setPaused(false, "resumed", "is not paused"),
	})
}

func setPaused(paused bool, changed, unchanged string) func(*v1alpha1.Queue) (string, bool) {
	return func(q *v1alpha1.Queue) (string, bool) {
		if q.Spec.Paused == paused {
			return unchanged, false
		}
		q.Spec.Paused = paused
		return changed, true
	}
}
