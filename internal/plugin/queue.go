package plugin

import (
	"github.com/spf13/cobra"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// newQueueCommand is `kubectl yardmaster queue`, the parent of commands for Queues.
func newQueueCommand(env *environment) *cobra.Command {
	return newParentCommand("queue", []string{"queues", "wq"}, "Inspect and pause Queues, send, follow and cancel jobs, and manage dead letters",
		newListCommand(env, queueKind, "List Queues with their message counts"),
		newChangeCommand(env, specChange[*v1alpha1.Queue]{
			kind: queueKind, verb: "pause", short: "Pause Queues",
			long:           "Pause Queues. Workers receive no more messages and finish those in flight. Producers can still send.",
			changeSpec:     func(q *v1alpha1.Queue) { q.Spec.Paused = true },
			changedMessage: "paused", unchangedMessage: "is already paused",
		}),
		newChangeCommand(env, specChange[*v1alpha1.Queue]{
			kind: queueKind, verb: "resume", short: "Resume Queues", long: "Resume paused Queues: workers receive messages again.",
			changeSpec:     func(q *v1alpha1.Queue) { q.Spec.Paused = false },
			changedMessage: "resumed", unchangedMessage: "is not paused",
		}),
		newSendCommand(env), newJobsCommand(env), newShowJobCommand(env), newCancelJobCommand(env), newDeadLetterCommand(env))
}
