package plugin

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool"
	"github.com/yardmaster/yardmaster/internal/plugin/follow"
	"github.com/yardmaster/yardmaster/test/require"
)

// manualPool returns a WorkerPool in namespace a that is not autoscaled.
func manualPool(name string, replicas int32, changes ...func(*v1alpha1.WorkerPool)) *v1alpha1.WorkerPool {
	wp := &v1alpha1.WorkerPool{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "a", UID: "1", Generation: 1}}
	wp.Spec.Replicas = &replicas
	for _, change := range changes {
		change(wp)
	}
	return wp
}

func TestPoolsAreDrainedAndRestarted(t *testing.T) {
	const mailers = "workerpool.yardmaster.dev/mailers"
	autoscaled := func(wp *v1alpha1.WorkerPool) {
		wp.Spec.Replicas, wp.Spec.Autoscaling = nil, &v1alpha1.Autoscaling{MinReplicas: 1, MaxReplicas: 9}
	}
	deleted := func(wp *v1alpha1.WorkerPool) {
		wp.Finalizers, wp.DeletionTimestamp = []string{v1alpha1.WorkerPoolFinalizer}, new(metav1.NewTime(testTime))
	}
	drains := func(action v1alpha1.DrainTimeoutAction) func(*v1alpha1.WorkerPool) {
		return func(wp *v1alpha1.WorkerPool) {
			timeout := v1alpha1.Duration{Duration: metav1.Duration{Duration: 10 * time.Minute}}
			wp.Status.Effective = &v1alpha1.WorkerPoolEffective{WorkerSettings: v1alpha1.WorkerSettings{Drain: &v1alpha1.Drain{Timeout: &timeout, OnTimeout: action}}}
		}
	}
	const finishes = ": removed workers first finish their messages in flight"
	const noLongerThan = finishes + " (HTTP, for up to 10m0s); after that "
	for title, row := range map[string]struct {
		change  func(*v1alpha1.WorkerPool)
		args    string
		done    string // what is printed after the name
		refusal string
		scaled  int32 // the replicas written to the scale subresource; -1 for none
	}{
		"all workers": {nil, "drain mailers", " scaled from 3 to 0" + finishes, "", 0},
		"some workers, with the drain settings of Policies": {
			drains(v1alpha1.DrainWait), "drain mailers --replicas=2", " scaled from 3 to 2" + noLongerThan + "they keep draining, and Degraded is True", "", 2,
		},
		"a dry run changes nothing": {
			drains(v1alpha1.DrainRequeue), "drain mailers --dry-run", " would be scaled from 3 to 0" + noLongerThan + "the broker redelivers their messages", "", -1,
		},
		"an autoscaled pool": {
			autoscaled, "drain mailers", "", "drain: it is autoscaled between 1 and 9 workers; lower spec.autoscaling.maxReplicas instead", -1,
		},
		"a pool that is being deleted is refused":       {deleted, "drain mailers", "", "drain: it is being deleted, which drains all workers", -1},
		"a pool that is being deleted is not restarted": {deleted, "restart mailers", "", "restart: it is being deleted", -1},
		"an unchanged number is refused":                {nil, "drain mailers --replicas=3", "", "drain: spec.replicas is already 3; --replicas must be lower", -1},
	} {
		t.Run(title, func(t *testing.T) {
			scaled := int32(-1)
			pool := manualPool("mailers", 3)
			if row.change != nil {
				row.change(pool)
			}
			// The fake client does not support the scale subresource of custom resources.
			c := interceptor.NewClient(newFakeClient(t, pool), interceptor.Funcs{
				SubResourceUpdate: func(_ context.Context, _ client.Client, name string, _ client.Object, options ...client.SubResourceUpdateOption) error {
					body := client.SubResourceUpdateOptions{}
					body.ApplyOptions(options)
					scale, isScale := body.SubResourceBody.(*autoscalingv1.Scale)
					require.True(t, name == "scale" && isScale && scale.ResourceVersion != "", "subresource %s, body %+v", name, body.SubResourceBody)
					scaled = scale.Spec.Replicas
					return nil
				},
			})
			wantCode, wantOut, wantErrOut := exitSuccess, mailers+row.done+"\n", ""
			if row.refusal != "" {
				wantCode, wantOut, wantErrOut = exitError, "", "error: "+mailers+": cannot "+row.refusal+"\n"
			}
			code, out, errOut := runPluginWith(t, "pool "+row.args, c)
			require.True(t, code == wantCode && out == wantOut && errOut == wantErrOut && scaled == row.scaled,
				"exit code %d, scaled to %d, stdout %q, stderr %q", code, scaled, out, errOut)
		})
	}
}

func TestDrainIsDoneWhenWorkersAreRemoved(t *testing.T) {
	status := func(observed int64, desired, replicas, draining int32) *v1alpha1.WorkerPool {
		return manualPool("mailers", 2, func(wp *v1alpha1.WorkerPool) {
			wp.Generation = 2
			wp.Status = v1alpha1.WorkerPoolStatus{ObservedStatus: v1alpha1.ObservedStatus{ObservedGeneration: observed}, Desired: desired, WorkerCounts: v1alpha1.WorkerCounts{Replicas: replicas, Draining: draining}}
		})
	}
	d := drainPoolCommand{replicas: 2}
	for title, row := range map[string]struct {
		pool *v1alpha1.WorkerPool
		want bool
	}{
		"not done before the operator has observed the request": {status(1, 2, 2, 0), false},
		"not done while a worker drains":                        {status(2, 2, 3, 1), false},
		"not done while a worker remains":                       {status(2, 2, 3, 0), false},
		"done when the workers are removed":                     {status(2, 2, 2, 0), true},
		"done when more workers are removed":                    {status(2, 1, 1, 0), true},
	} {
		t.Run(title, func(t *testing.T) { require.Equal(t, row.want, d.isDrained(row.pool)) })
	}
}

func TestPoolViewKeepsARecentBacklogHistory(t *testing.T) {
	v := newPoolListView(&environment{})
	update := func(backlog int64) follow.ObjectUpdate[*v1alpha1.WorkerPool] {
		return follow.ObjectUpdate[*v1alpha1.WorkerPool]{Object: manualPool("mailers", 3, func(wp *v1alpha1.WorkerPool) { wp.Status.Backlog = &backlog })}
	}
	for i := range int64(100) {
		lines := v.applyUpdate(update(i))
		require.True(t, len(lines) == 1 && strings.HasPrefix(lines[0].Text, "mailers backlog "), "lines %q", lines)
	}
	lines := v.applyUpdate(update(99))
	require.True(t, len(lines) == 0, "lines without a change: %q", lines)
	load := v.loads[client.ObjectKey{Namespace: "a", Name: "mailers"}]
	require.True(t, len(load.Backlogs) == backlogHistoryLength && load.Backlogs[backlogHistoryLength-1] == 99 && load.Backlogs[0] == 77, "%v", load)
	deleted := update(99)
	deleted.Deleted = true
	lines = v.applyUpdate(deleted)
	require.True(t, len(lines) == 1 && lines[0].Text == "mailers was deleted" && len(v.loads) == 0, "lines %q, loads %v", lines, v.loads)
	finished, _ := v.isFinished()
	require.True(t, !finished, "watching a namespace has finished")
}

func TestWatchingOnePoolEndsWhenItIsDeleted(t *testing.T) {
	v := newPoolListView(&environment{})
	v.singlePool = manualPool("mailers", 3)
	namesake := manualPool("mailers", 3, func(wp *v1alpha1.WorkerPool) { wp.UID = "2" })
	lines := v.applyUpdate(follow.ObjectUpdate[*v1alpha1.WorkerPool]{Object: namesake})
	require.True(t, len(lines) == 0, "lines for another pool with the same name: %q", lines)
	finished, err := v.isFinished()
	require.True(t, finished && err != nil && err.Error() == "workerpool.yardmaster.dev/mailers was deleted", "finished %t, %v", finished, err)
	v.applyUpdate(follow.ObjectUpdate[*v1alpha1.WorkerPool]{Object: v.singlePool})
	finished, err = v.isFinished()
	require.True(t, !finished && err == nil, "finished %t, %v", finished, err)
}

// workerPod returns a ready worker of the pool mailers.
func workerPod(name string, changes ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "a", UID: "7", CreationTimestamp: metav1.NewTime(testTime.Add(-3 * time.Minute)), Annotations: map[string]string{workerpool.AnnotationWorkerPool: "mailers"},
			Labels: map[string]string{workerpool.LabelWorkerPool: "mailers", workerpool.LabelRevision: "5c9f7d"},
		},
		Spec:   corev1.PodSpec{NodeName: "node-1", TerminationGracePeriodSeconds: new(int64(360))},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
	for _, change := range changes {
		change(pod)
	}
	return pod
}

func terminating(p *corev1.Pod) {
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds, p.Finalizers = new(metav1.NewTime(testTime)), new(int64(60)), []string{"test/x"}
}

func TestNamedWorkerIsEvicted(t *testing.T) {
	const mailers = "workerpool.yardmaster.dev/mailers"
	foreign := func(p *corev1.Pod) { p.Annotations[workerpool.AnnotationWorkerPool] = "other" }
	ended := func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }
	tooMany := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
	for title, row := range map[string]struct {
		pod         *corev1.Pod
		args        string
		err         error
		out, errOut string // the text, and parts of it
		evicted     bool
	}{
		"ready":              {workerPod("w"), "w", nil, mailers + ": worker w drains: it finishes its messages in flight, for up to 6m0s, and is replaced\n", "", true},
		"a dry run":          {workerPod("w"), "w --dry-run", nil, mailers + ": worker w would drain: it finishes its messages in flight, for up to 6m0s, and is replaced\n", "", true},
		"not now":            {workerPod("w"), "w", tooMany, "", "cannot drain worker w now: another worker is not available, and spec.disruption.maxUnavailable does not allow more", true},
		"not permitted":      {workerPod("w"), "w", apierrors.NewForbidden(schema.GroupResource{Resource: "pods/eviction"}, "w", errors.New("no")), "", "cannot drain worker w: pods/eviction \"w\" is forbidden", true},
		"missing":            {workerPod("other"), "w", nil, "", `pods "w" not found`, false},
		"of another pool":    {workerPod("w", foreign), "w", nil, "", "it is no worker of this pool: see pool workers", false},
		"terminating":        {workerPod("w", terminating), "w", nil, "", "it already drains", false},
		"ended":              {workerPod("w", ended), "w", nil, "", "it has ended", false},
		"with --replicas":    {workerPod("w"), "w --replicas=1", nil, "", "a WORKER cannot be combined with --replicas or --watch", false},
		"with --watch":       {workerPod("w"), "w -w", nil, "", "a WORKER cannot be combined with --replicas or --watch", false},
		"more than one name": {workerPod("w"), "w x", nil, "", "accepts between 1 and 2 arg(s)", false},
	} {
		t.Run(title, func(t *testing.T) {
			evicted := false
			c := interceptor.NewClient(newFakeClient(t, manualPool("mailers", 3), row.pod), interceptor.Funcs{
				SubResourceCreate: func(_ context.Context, _ client.Client, name string, object, body client.Object, _ ...client.SubResourceCreateOption) error {
					eviction, isEviction := body.(*policyv1.Eviction)
					evicted = name == "eviction" && isEviction && object.GetName() == "w" && *eviction.DeleteOptions.Preconditions.UID == "7"
					require.Equal(t, strings.Contains(row.args, "dry-run"), len(eviction.DeleteOptions.DryRun) > 0)
					return row.err
				},
			})
			_, out, errOut := runPluginWith(t, "pool drain mailers "+row.args, c)
			require.True(t, out == row.out && strings.Contains(errOut, row.errOut) && (row.errOut == "") == (errOut == "") && evicted == row.evicted,
				"evicted %v, stdout %q, stderr %q", evicted, out, errOut)
		})
	}
}

func TestWorkersAreListedWithTheirState(t *testing.T) {
	draining := func(p *corev1.Pod) { p.Annotations[workerpool.AnnotationDraining] = "2026-03-01T11:59:00Z" }
	starting := func(p *corev1.Pod) { p.Spec.NodeName, p.Status = "", corev1.PodStatus{Phase: corev1.PodPending} }
	crashing := func(p *corev1.Pod) { p.Status.Conditions = nil }
	ended := func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }
	foreign := func(p *corev1.Pod) { p.Annotations = nil }
	c := newFakeClient(t, manualPool("mailers", 3), workerPod("w-1"), workerPod("w-2", draining), workerPod("w-3", starting), workerPod("w-4", crashing),
		workerPod("w-5", terminating), workerPod("w-6", ended), workerPod("w-7", foreign))
	code, out, errOut := runPluginWith(t, "pool workers mailers", c)
	var rows []string
	for line := range strings.Lines(out) {
		rows = append(rows, strings.Join(strings.Fields(line), " "))
	}
	if want := "NAME STATE REVISION NODE AGE|w-1 Ready 5c9f7d node-1 3m|w-2 Draining for"; code != exitSuccess || errOut != "" || !strings.HasPrefix(strings.Join(rows, "|"), want) ||
		!strings.Contains(out, "w-3") || len(rows) != 6 || !strings.HasPrefix(rows[3], "w-3 Starting 5c9f7d <none>") || !strings.HasPrefix(rows[4], "w-4 NotReady") || !strings.HasPrefix(rows[5], "w-5 Terminating for 60s") {
		t.Errorf("exit code %d, stderr %q, stdout:\n%s", code, errOut, out)
	}
	code, out, _ = runPluginWith(t, "pool workers mailers -o json", c)
	require.True(t, code == exitSuccess && strings.Contains(out, `"state": "Draining"`), "exit code %d, stdout %s", code, out)
	_, _, errOut = runPluginWith(t, "pool workers mailers", newFakeClient(t, manualPool("mailers", 0)))
	require.True(t, errOut == "workerpool.yardmaster.dev/mailers has no workers.\n", "stderr %q", errOut)
}
