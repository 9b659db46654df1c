package plugin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool"
	"github.com/yardmaster/yardmaster/internal/plugin/render"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

// newPoolWorkersCommand is `kubectl yardmaster pool workers`.
func newPoolWorkersCommand(env *environment) *cobra.Command {
	var format string
	command := workerPoolKind.newObjectCommand(env, "workers", "List the workers of a WorkerPool",
		"List the workers of a WorkerPool, which are its Pods, with their revision, state and node. `pool drain NAME WORKER` drains one of them.",
		func(ctx context.Context, cluster *clusterConnection, wp *v1alpha1.WorkerPool) error {
			pods, err := listWorkers(ctx, cluster, wp)
			if err != nil {
				return err
			}
			workers := []render.Worker{}
			for i := range pods {
				workers = append(workers, workerOutput(&pods[i]))
			}
			return env.printWorkers(wp, workers, format)
		})
	addOutputFlag(command, &format, outputTable, outputJSON, outputYAML)
	return command
}

// listWorkers returns the Pods of a pool that have not ended, by name.
func listWorkers(ctx context.Context, cluster *clusterConnection, wp *v1alpha1.WorkerPool) ([]corev1.Pod, error) {
	var list corev1.PodList
	if err := cluster.List(ctx, &list, client.InNamespace(wp.Namespace), client.MatchingLabels(workerpool.WorkerSelector(wp.Name))); err != nil {
		return nil, err
	}
	pods := slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return !isWorkerOf(&p, wp) || isEnded(&p) })
	slices.SortFunc(pods, func(a, b corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	return pods, nil
}

// isWorkerOf reports whether a Pod is a worker of the pool.
func isWorkerOf(pod *corev1.Pod, wp *v1alpha1.WorkerPool) bool {
	return pod.Annotations[workerpool.AnnotationWorkerPool] == wp.Name && pod.Labels[workerpool.LabelWorkerPool] == workerpool.WorkerSelector(wp.Name)[workerpool.LabelWorkerPool]
}

func isEnded(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
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

// gracePeriodOf returns the seconds that a terminating Pod has, else those that it would have.
func gracePeriodOf(pod *corev1.Pod) int64 {
	switch {
	case pod.DeletionGracePeriodSeconds != nil:
		return *pod.DeletionGracePeriodSeconds
	case pod.Spec.TerminationGracePeriodSeconds != nil:
		return *pod.Spec.TerminationGracePeriodSeconds
	default:
		return corev1.DefaultTerminationGracePeriodSeconds
	}
}

func (e *environment) printWorkers(wp *v1alpha1.WorkerPool, workers []render.Worker, format string) error {
	if format != outputTable {
		return printEncoded(e.out, format, workers)
	}
	if len(workers) == 0 {
		fmt.Fprintf(e.errOut, "%s has no workers.\n", workerPoolKind.qualifiedName(wp))
		return nil
	}
	age := func(t time.Time) string { return duration.HumanDuration(max(0, e.now().Sub(t))) }
	rows := [][]string{{"NAME", "STATE", "REVISION", "NODE", "AGE"}}
	for _, w := range workers {
		if !w.Since.IsZero() {
			w.State += " for " + age(w.Since)
		}
		rows = append(rows, []string{w.Name, w.State, terminal.Sanitize(w.Revision), cmp.Or(terminal.Sanitize(w.Node), "<none>"), age(w.Created)})
	}
	return terminal.WriteLines(e.out, e.outputStyle().Table(rows))
}
