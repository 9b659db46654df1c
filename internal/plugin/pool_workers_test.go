package plugin

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/yardmaster/yardmaster/internal/kinds/workerpool"
	"github.com/yardmaster/yardmaster/test/require"
)

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
			if out != row.out || !strings.Contains(errOut, row.errOut) || (row.errOut == "") != (errOut == "") || evicted != row.evicted {
				t.Errorf("evicted %v, stdout %q, stderr %q", evicted, out, errOut)
			}
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
	if code, out, _ := runPluginWith(t, "pool workers mailers -o json", c); code != exitSuccess || !strings.Contains(out, `"state": "Draining"`) {
		t.Errorf("exit code %d, stdout %s", code, out)
	}
	if _, _, errOut := runPluginWith(t, "pool workers mailers", newFakeClient(t, manualPool("mailers", 0))); errOut != "workerpool.yardmaster.dev/mailers has no workers.\n" {
		t.Errorf("stderr %q", errOut)
	}
}
