package plugin

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// newPauseScalingCommand is `kubectl yardmaster pool pause-scaling`.
func newPauseScalingCommand(env *environment) *cobra.Command {
	pause := time.Hour
	until := func() time.Time { return env.now().Add(pause).Truncate(time.Second) }
	command := newChangeCommand(env, specChange[*v1alpha1.WorkerPool]{
		kind: workerPoolKind, verb: "pause-scaling", short: "Pause the autoscaling of WorkerPools",
		long: "Pause the autoscaling of WorkerPools for a time, by setting spec.autoscaling.pausedUntil: the number of workers stays as it is. " +
			"It has no effect on a WorkerPool that is not autoscaled.",
		changeSpec: func(wp *v1alpha1.WorkerPool) {
			if wp.Spec.Autoscaling != nil {
				wp.Spec.Autoscaling.PausedUntil = &metav1.Time{Time: until()}
			}
		},
		changedMessage: "does not scale", unchangedMessage: "is not autoscaled",
		remark: func(wp *v1alpha1.WorkerPool) string {
			if wp.Spec.Autoscaling == nil {
				return ""
			}
			return " until " + wp.Spec.Autoscaling.PausedUntil.UTC().Format(time.RFC3339)
		},
	})
	addDurationFlag(command, &pause, "for", "How long the number of workers stays as it is, such as 30m or 2h.")
	command.PreRunE = func(*cobra.Command, []string) error {
		if pause <= 0 {
			return fmt.Errorf("invalid --for %s: must be greater than 0", pause)
		}
		return nil
	}
	return command
}

// newResumeScalingCommand is `kubectl yardmaster pool resume-scaling`.
func newResumeScalingCommand(env *environment) *cobra.Command {
	return newChangeCommand(env, specChange[*v1alpha1.WorkerPool]{
		kind: workerPoolKind, verb: "resume-scaling", short: "Resume the autoscaling of WorkerPools",
		long: "Resume the autoscaling of WorkerPools, by removing spec.autoscaling.pausedUntil.",
		changeSpec: func(wp *v1alpha1.WorkerPool) {
			if wp.Spec.Autoscaling != nil {
				wp.Spec.Autoscaling.PausedUntil = nil
			}
		},
		changedMessage: "scales again", unchangedMessage: "is not paused",
	})
}
