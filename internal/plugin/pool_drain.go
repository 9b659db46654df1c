package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// drainPoolCommand is `kubectl yardmaster pool drain`.
type drainPoolCommand struct {
	*environment

	replicas      int32
	dryRun, watch bool
}

func newDrainPoolCommand(env *environment) *cobra.Command {
	d := &drainPoolCommand{environment: env}
	command := &cobra.Command{
		Use:   "drain NAME",
		Short: "Drain workers of a WorkerPool that is not autoscaled",
		Long: "Drain workers of a WorkerPool that is not autoscaled: ask for fewer replicas, through its scale subresource.\n\n" +
			"The operator chooses which go, idle ones first and then the youngest, and lets each finish what it has before it is removed. " +
			"An autoscaled pool is refused: it would only start others; lower its maxReplicas.",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: workerPoolKind().completeSingleName(env),
		RunE:              func(command *cobra.Command, args []string) error { return d.drainPool(command.Context(), args[0]) },
	}
	f := command.Flags()
	f.Int32Var(&d.replicas, "replicas", 0, "How many workers stay.")
	f.BoolVar(&d.dryRun, "dry-run", false, "Say what would happen, and write nothing.")
	f.BoolVarP(&d.watch, "watch", "w", false, "Watch until they are gone.")
	return command
}

func (d *drainPoolCommand) drainPool(ctx context.Context, name string) error {
	if d.replicas < 0 {
		return fmt.Errorf("--replicas is %d, must not be negative", d.replicas)
	}
	if d.dryRun && d.watch {
		return errors.New("--watch cannot stand with --dry-run: nothing happens")
	}
	cluster, err := d.connect(d.clientConfig)
	if err != nil {
		return err
	}
	wp := &v1alpha1.WorkerPool{}
	if err := cluster.getByName(ctx, name, wp); err != nil {
		return err
	}
	called := workerPoolKind().qualifiedName(wp)
	if err := d.checkDrainable(wp); err != nil {
		return fmt.Errorf("%s: %w", called, err)
	}
	if d.dryRun {
		fmt.Fprintf(d.out, "%s would be scaled from %d to %d: %s\n", called, *wp.Spec.Replicas, d.replicas, describeDrain(wp))
		return nil
	}
	// The version says that the pool is as it was looked at.
	scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: d.replicas}}
	scale.Namespace, scale.Name, scale.ResourceVersion = wp.Namespace, wp.Name, wp.ResourceVersion
	if err := cluster.SubResource("scale").Update(ctx, wp.DeepCopy(), client.WithSubResourceBody(scale)); err != nil {
		return explainConflict(called, err)
	}
	fmt.Fprintf(d.out, "%s scaled from %d to %d: %s\n", called, *wp.Spec.Replicas, d.replicas, describeDrain(wp))
	if !d.watch {
		return nil
	}
	return d.watchSinglePool(ctx, cluster, wp, func(now *v1alpha1.WorkerPool) bool { return now.Generation > wp.Generation && d.isDrained(now) })
}

// checkDrainable tells why draining would do nothing, or not what is meant.
func (d *drainPoolCommand) checkDrainable(wp *v1alpha1.WorkerPool) error {
	switch a := wp.Spec.Autoscaling; {
	case !wp.DeletionTimestamp.IsZero():
		return errors.New("cannot drain: it is being deleted, and all its workers are drained")
	case a != nil:
		return fmt.Errorf("cannot drain: it is autoscaled between %d and %d workers; lower spec.autoscaling.maxReplicas instead", a.MinReplicas, a.MaxReplicas)
	case wp.Spec.Replicas == nil:
		return errors.New("cannot drain: spec.replicas is not set")
	case *wp.Spec.Replicas <= d.replicas:
		return fmt.Errorf("cannot drain: spec.replicas is %d already, --replicas must be less", *wp.Spec.Replicas)
	default:
		return nil
	}
}

// isDrained reports whether the operator has seen the request, and is done with it.
func (d *drainPoolCommand) isDrained(wp *v1alpha1.WorkerPool) bool {
	status := &wp.Status
	return status.ObservedGeneration >= wp.Generation && status.Desired <= d.replicas && status.Replicas <= d.replicas && status.Draining == 0
}

// describeDrain is how workers go.
func describeDrain(wp *v1alpha1.WorkerPool) string {
	drain := wp.Spec.Drain
	if e := wp.Status.Effective; e != nil && e.Drain != nil {
		drain = e.Drain
	}
	text := "each worker that goes first finishes what it has in flight"
	if drain == nil || drain.Timeout == nil {
		return text
	}
	text += " (" + string(cmp.Or(drain.Mode, v1alpha1.DrainHTTP)) + ")"
	then := "then it says so in DrainTimedOut and waits on"
	if drain.OnTimeout == v1alpha1.DrainRequeue {
		then = "then it goes, and the broker gives to others what it had"
	}
	return fmt.Sprintf("%s, for %s; %s", text, drain.Timeout.Duration.Duration, then)
}
