package plugin

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// drainWorker evicts a worker, as the drain of its node does: its preStop hook drains it within its grace period, the
// disruption budget of the pool limits how many workers are drained at once, and the pool replaces it.
func (d *drainPoolCommand) drainWorker(ctx context.Context, cluster *clusterConnection, wp *v1alpha1.WorkerPool, name string) error {
	pod := &corev1.Pod{}
	err := cluster.Get(ctx, client.ObjectKey{Namespace: wp.Namespace, Name: name}, pod)
	if err == nil {
		err = checkEvictable(pod, wp)
	}
	if err == nil {
		err = cluster.SubResource("eviction").Create(ctx, pod, d.eviction(pod))
	}
	switch {
	case apierrors.IsTooManyRequests(err):
		return fmt.Errorf("%s: cannot drain worker %s now: another worker is not available, and spec.disruption.maxUnavailable does not allow more: %w", workerPoolKind.qualifiedName(wp), name, err)
	case err != nil:
		return fmt.Errorf("%s: cannot drain worker %s: %w", workerPoolKind.qualifiedName(wp), name, err)
	}
	verb := "drains"
	if d.dryRun {
		verb = "would drain"
	}
	fmt.Fprintf(d.out, "%s: worker %s %s: it finishes its messages in flight, for up to %s, and is replaced\n",
		workerPoolKind.qualifiedName(wp), name, verb, time.Duration(gracePeriodOf(pod))*time.Second)
	return nil
}

func checkEvictable(pod *corev1.Pod, wp *v1alpha1.WorkerPool) error {
	switch {
	case !isWorkerOf(pod, wp):
		return errors.New("it is no worker of this pool: see pool workers")
	case !pod.DeletionTimestamp.IsZero():
		return errors.New("it already drains, because it was deleted or evicted")
	case isEnded(pod):
		return errors.New("it has ended")
	default:
		return nil
	}
}

// eviction is refused if another Pod has the name by then.
func (d *drainPoolCommand) eviction(pod *corev1.Pod) *policyv1.Eviction {
	e := &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))},
	}
	if d.dryRun {
		e.DeleteOptions.DryRun = []string{metav1.DryRunAll}
	}
	return e
}
