package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool"
	"github.com/yardmaster/yardmaster/internal/plugin/render"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

func newPoolWorkersCommand(env *environment) *cobra.Command {
	var format string
	command := workerPoolKind.newObjectCommand(env, "workers", "List the workers of a WorkerPool",
		"List the workers of a WorkerPool, which are its Pods, with their revision, state and node. `pool drain NAME WORKER` drains one of them.",
		func(ctx context.Context, cluster *clusterConnection, wp *v1alpha1.WorkerPool) error {
			var pods corev1.PodList
			if err := cluster.List(ctx, &pods, client.InNamespace(wp.Namespace), client.MatchingLabels(workerpool.WorkerSelector(wp.Name))); err != nil {
				return err
			}
			slices.SortFunc(pods.Items, func(a, b corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
			workers := []render.Worker{}
			for i := range pods.Items {
				if pod := &pods.Items[i]; isWorkerOf(pod, wp) && !decision.HasPodEnded(pod) {
					workers = append(workers, workerOutput(pod))
				}
			}
			if format != outputTable {
				return printEncoded(env.out, format, workers)
			}
			if len(workers) == 0 {
				fmt.Fprintf(env.errOut, "%s has no workers.\n", workerPoolKind.qualifiedName(wp))
				return nil
			}
			age := func(t time.Time) string { return duration.HumanDuration(max(0, env.now().Sub(t))) }
			rows := [][]string{{"NAME", "STATE", "REVISION", "NODE", "AGE"}}
			for _, w := range workers {
				if !w.Since.IsZero() {
					w.State += " for " + age(w.Since)
				}
				rows = append(rows, []string{w.Name, w.State, terminal.Sanitize(w.Revision), cmp.Or(terminal.Sanitize(w.Node), "<none>"), age(w.Created)})
			}
			return terminal.WriteLines(env.out, env.outputStyle().Table(rows))
		})
	addOutputFlag(command, &format, outputTable, outputJSON, outputYAML)
	return command
}

func isWorkerOf(pod *corev1.Pod, wp *v1alpha1.WorkerPool) bool {
	return pod.Annotations[workerpool.AnnotationWorkerPool] == wp.Name && pod.Labels[workerpool.LabelWorkerPool] == workerpool.WorkerSelector(wp.Name)[workerpool.LabelWorkerPool]
}

func workerOutput(pod *corev1.Pod) render.Worker {
	w := render.Worker{Name: pod.Name, State: "NotReady", Revision: pod.Labels[workerpool.LabelRevision], Node: pod.Spec.NodeName, Created: pod.CreationTimestamp.Time}
	ready := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
	draining, err := time.Parse(time.RFC3339, pod.Annotations[workerpool.AnnotationDraining])
	switch {
	case !pod.DeletionTimestamp.IsZero():
		w.State, w.Since = "Terminating", pod.DeletionTimestamp.Add(-time.Duration(gracePeriodOf(pod))*time.Second)
	case err == nil:
		w.State, w.Since = "Draining", draining
	case ready:
		w.State = "Ready"
	case pod.Status.Phase == corev1.PodPending:
		w.State = "Starting"
	}
	return w
}

// gracePeriodOf returns the grace period of a terminating Pod in seconds, or else the grace period in its spec.
func gracePeriodOf(pod *corev1.Pod) int64 {
	return ptr.Deref(cmp.Or(pod.DeletionGracePeriodSeconds, pod.Spec.TerminationGracePeriodSeconds), corev1.DefaultTerminationGracePeriodSeconds)
}

type drainPoolCommand struct {
	*environment

	replicas      int32
	dryRun, watch bool
}

func newDrainPoolCommand(env *environment) *cobra.Command {
	d := &drainPoolCommand{environment: env}
	worker := ""
	command := workerPoolKind.newObjectCommand(env, "drain", "Drain a worker, or workers of a WorkerPool that is not autoscaled",
		"Drain a worker, or workers of a WorkerPool that is not autoscaled.\n\n"+
			"With a WORKER, which is the name of a Pod, that worker is evicted: it finishes its messages in flight within its grace period, and the pool "+
			"replaces it. The disruption budget of the pool limits how many are evicted at once.\n\n"+
			"Without a WORKER, the command sets fewer replicas through the scale subresource. The operator removes idle workers first, then the youngest. "+
			"Each finishes its messages in flight before it is removed. For an autoscaled pool, lower maxReplicas instead: the autoscaler would replace "+
			"drained workers.",
		func(ctx context.Context, cluster *clusterConnection, wp *v1alpha1.WorkerPool) error {
			if worker != "" {
				return d.drainWorker(ctx, cluster, wp, worker)
			}
			return d.drainPool(ctx, cluster, wp)
		})
	const maxArgs = 2
	command.Use, command.Args = "drain NAME [WORKER]", cobra.RangeArgs(1, maxArgs)
	command.PreRunE = func(_ *cobra.Command, args []string) error {
		if len(args) == maxArgs {
			worker = args[1]
		}
		switch {
		case worker != "" && (command.Flags().Changed("replicas") || d.watch):
			return errors.New("a WORKER cannot be combined with --replicas or --watch")
		case d.replicas < 0:
			return fmt.Errorf("invalid --replicas %d: must not be negative", d.replicas)
		case d.dryRun && d.watch:
			return errors.New("--watch cannot be combined with --dry-run")
		}
		return nil
	}
	f := command.Flags()
	f.Int32Var(&d.replicas, "replicas", 0, "Number of workers to keep.")
	f.BoolVar(&d.dryRun, "dry-run", false, "Print what would happen without changing anything.")
	f.BoolVarP(&d.watch, "watch", "w", false, "Watch until the workers are removed.")
	return command
}

func (d *drainPoolCommand) drainPool(ctx context.Context, cluster *clusterConnection, wp *v1alpha1.WorkerPool) error {
	qualifiedName := workerPoolKind.qualifiedName(wp)
	if err := d.checkDrainable(wp); err != nil {
		return fmt.Errorf("%s: cannot drain: %w", qualifiedName, err)
	}
	if d.dryRun {
		fmt.Fprintf(d.out, "%s would be scaled from %d to %d: %s\n", qualifiedName, *wp.Spec.Replicas, d.replicas, describeDrain(wp))
		return nil
	}
	// With the resource version, the API server refuses the request if the pool has changed since the check.
	scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: d.replicas}}
	scale.Namespace, scale.Name, scale.ResourceVersion = wp.Namespace, wp.Name, wp.ResourceVersion
	if err := cluster.SubResource("scale").Update(ctx, wp.DeepCopy(), client.WithSubResourceBody(scale)); err != nil {
		return explainConflict(qualifiedName, err)
	}
	fmt.Fprintf(d.out, "%s scaled from %d to %d: %s\n", qualifiedName, *wp.Spec.Replicas, d.replicas, describeDrain(wp))
	if !d.watch {
		return nil
	}
	return d.watchSinglePool(ctx, cluster, wp, func(now *v1alpha1.WorkerPool) bool { return now.Generation > wp.Generation && d.isDrained(now) })
}

// checkDrainable returns an error if setting the replicas would not drain workers.
func (d *drainPoolCommand) checkDrainable(wp *v1alpha1.WorkerPool) error {
	switch a := wp.Spec.Autoscaling; {
	case !wp.DeletionTimestamp.IsZero():
		return errors.New("it is being deleted, which drains all workers")
	case a != nil:
		return fmt.Errorf("it is autoscaled between %d and %d workers; lower spec.autoscaling.maxReplicas instead", a.MinReplicas, a.MaxReplicas)
	case wp.Spec.Replicas == nil:
		return errors.New("spec.replicas is not set")
	case *wp.Spec.Replicas <= d.replicas:
		return fmt.Errorf("spec.replicas is already %d; --replicas must be lower", *wp.Spec.Replicas)
	default:
		return nil
	}
}

// isDrained reports whether the operator has observed the request and removed the workers.
func (d *drainPoolCommand) isDrained(wp *v1alpha1.WorkerPool) bool {
	status := &wp.Status
	return status.ObservedGeneration >= wp.Generation && status.Desired <= d.replicas && status.Replicas <= d.replicas && status.Draining == 0
}

func describeDrain(wp *v1alpha1.WorkerPool) string {
	drain := wp.Spec.Drain
	if e := wp.Status.Effective; e != nil && e.Drain != nil {
		drain = e.Drain
	}
	text := "removed workers first finish their messages in flight"
	if drain == nil || drain.Timeout == nil {
		return text
	}
	afterTimeout := "after that they keep draining, and Degraded is True"
	if drain.OnTimeout == v1alpha1.DrainRequeue {
		afterTimeout = "after that the broker redelivers their messages"
	}
	return fmt.Sprintf("%s (%s, for up to %s); %s", text, cmp.Or(drain.Mode, v1alpha1.DrainHTTP), drain.Timeout.Duration.Duration, afterTimeout)
}

// drainWorker evicts a worker, as the drain of its node does: its preStop hook drains it within its grace period, the disruption
// budget of the pool limits how many workers are drained at once, and the pool replaces it.
func (d *drainPoolCommand) drainWorker(ctx context.Context, cluster *clusterConnection, wp *v1alpha1.WorkerPool, name string) error {
	pod, qualifiedName := &corev1.Pod{}, workerPoolKind.qualifiedName(wp)
	err := cluster.Get(ctx, client.ObjectKey{Namespace: wp.Namespace, Name: name}, pod)
	if err == nil {
		err = checkEvictable(pod, wp)
	}
	if err == nil {
		eviction := &policyv1.Eviction{
			ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace},
			// It is refused if another Pod has taken the name.
			DeleteOptions: &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))},
		}
		if d.dryRun {
			eviction.DeleteOptions.DryRun = []string{metav1.DryRunAll}
		}
		err = cluster.SubResource("eviction").Create(ctx, pod, eviction)
	}
	switch {
	case apierrors.IsTooManyRequests(err):
		return fmt.Errorf("%s: cannot drain worker %s now: another worker is not available, and "+
			"spec.disruption.maxUnavailable does not allow more: %w", qualifiedName, name, err)
	case err != nil:
		return fmt.Errorf("%s: cannot drain worker %s: %w", qualifiedName, name, err)
	}
	verb := "drains"
	if d.dryRun {
		verb = "would drain"
	}
	fmt.Fprintf(d.out, "%s: worker %s %s: it finishes its messages in flight, for up to %s, and is replaced\n", qualifiedName, name, verb, time.Duration(gracePeriodOf(pod))*time.Second)
	return nil
}

func checkEvictable(pod *corev1.Pod, wp *v1alpha1.WorkerPool) error {
	switch {
	case !isWorkerOf(pod, wp):
		return errors.New("it is no worker of this pool: see pool workers")
	case !pod.DeletionTimestamp.IsZero():
		return errors.New("it already drains, because it was deleted or evicted")
	case decision.HasPodEnded(pod):
		return errors.New("it has ended")
	default:
		return nil
	}
}
