package plugin

import (
	"context"
	"errors"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/follow"
)

// describedQueue is a Queue with a condition and an event.
func describedQueue() []client.Object {
	q := &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "orders", UID: "q"}}
	q.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: "ConnectionFailed", Message: "connection refused",
		LastTransitionTime: metav1.NewTime(testTime.Add(-time.Hour)),
	}}
	event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "e"}, Type: "Warning", Reason: "BrokerUnreachable", Message: "no route", Count: 3}
	event.InvolvedObject.UID, event.LastTimestamp = "q", metav1.NewTime(testTime.Add(-time.Minute))
	return []client.Object{q, event}
}

func TestDescribeShowsConditionsAndEvents(t *testing.T) {
	code, out, errOut := runPlugin(t, "queue describe orders", describedQueue()...)
	if code != exitSuccess || errOut != "" {
		t.Errorf("exit code %d, stderr %q", code, errOut)
	}
	for _, want := range []string{"orders", "Ready       False    60m   ConnectionFailed   connection refused", "Warning   60s (3 times)   BrokerUnreachable   no route"} {
		if !strings.Contains(out, want) {
			t.Errorf("missing %q:\n%s", want, out)
		}
	}
}

func TestEveryKindCanBeDescribed(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: "a", Name: "x"}
	objects := []client.Object{
		&v1alpha1.SequentialJob{ObjectMeta: meta}, &v1alpha1.Queue{ObjectMeta: meta}, &v1alpha1.WorkerPool{ObjectMeta: meta}, &v1alpha1.AgenticSession{ObjectMeta: meta}, &v1alpha1.Schedule{ObjectMeta: meta},
	}
	for _, kind := range []string{"seq", "queue", "pool", "session", "schedule"} {
		code, out, errOut := runPlugin(t, kind+" describe x", objects...)
		if code != exitSuccess || errOut != "" || !strings.Contains(out, "x") {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q", kind, code, out, errOut)
		}
	}
}

func TestDescribeWithoutPermissionForEventsOmitsThem(t *testing.T) {
	forbidden := interceptor.NewClient(newFakeClient(t, describedQueue()...), interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "events"}, "", errors.New("no RBAC policy matched"))
		},
	})
	code, out, errOut := runPluginWith(t, "queue describe orders", forbidden)
	if code != exitSuccess || !strings.Contains(out, "ConnectionFailed") || !strings.HasPrefix(errOut, "warning: events are unknown: ") {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, out, errOut)
	}
}

func TestDeleteReportsEachObject(t *testing.T) {
	c := newFakeClient(t, describedQueue()...)
	code, out, errOut := runPluginWith(t, "queue delete orders missing", c)
	if code != exitError || out != "queue.yardmaster.dev/orders deleted\n" || errOut != "error: queues.yardmaster.dev \"missing\" not found\n" {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, out, errOut)
	}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "a", Name: "orders"}, &v1alpha1.Queue{}); !apierrors.IsNotFound(err) {
		t.Errorf("after the deletion: %v", err)
	}
}

func TestListWatchPrintsARowForEachChange(t *testing.T) {
	view := &rowView[*v1alpha1.Queue]{
		listCommand: &listCommand[*v1alpha1.Queue]{environment: &environment{now: func() time.Time { return testTime }}, kind: queueKind},
		objects:     map[client.ObjectKey]*v1alpha1.Queue{}, printed: map[client.ObjectKey]string{},
	}
	view.format = outputWide
	q, isQueue := describedQueue()[0].(*v1alpha1.Queue)
	if !isQueue {
		t.Fatal("the object is no Queue")
	}
	first := view.applyUpdate(follow.ObjectUpdate[*v1alpha1.Queue]{Object: q})
	if len(first) != 1 || !strings.HasSuffix(first[0].Text, "False   connection refused") {
		t.Errorf("a new object is printed as %v", first)
	}
	if again := view.applyUpdate(follow.ObjectUpdate[*v1alpha1.Queue]{Object: q}); again != nil {
		t.Errorf("an unchanged row is printed again: %v", again)
	}
	changed := q.DeepCopy()
	changed.Status.Conditions[0].Status = metav1.ConditionTrue
	if lines := view.applyUpdate(follow.ObjectUpdate[*v1alpha1.Queue]{Object: changed}); len(lines) != 1 {
		t.Errorf("a changed row is printed as %v", lines)
	}
	if lines := view.renderLines(0); len(lines) != 2 {
		t.Errorf("on a terminal: %q", lines)
	}
	if lines := view.applyUpdate(follow.ObjectUpdate[*v1alpha1.Queue]{Object: changed, Deleted: true}); len(lines) != 1 || lines[0].Text != "orders was deleted" {
		t.Errorf("a deleted object is printed as %q", lines)
	}
}

func TestVersionPrintsOneLine(t *testing.T) {
	code, out, errOut := runPlugin(t, "version")
	if code != exitSuccess || strings.Count(out, "\n") != 1 || strings.TrimSpace(out) == "" || errOut != "" {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, out, errOut)
	}
}

func TestConnectionErrorsSayWhatToDo(t *testing.T) {
	refused := &url.Error{Op: "Get", URL: "https://10.0.0.1:6443/api?timeout=32s", Err: &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}}
	for name, row := range map[string]struct {
		err  error
		want string
	}{
		"the API server does not answer": {
			errors.Join(errors.New("failed to get server groups"), refused),
			"cannot connect to the API server https://10.0.0.1:6443: connection refused; check the context with kubectl config current-context",
		},
		"no cluster is configured": {clientcmd.ErrEmptyConfig, "no cluster is configured: set --kubeconfig, or the environment variable KUBECONFIG"},
		"the credentials are not accepted": {
			apierrors.NewUnauthorized("token expired"),
			"the API server does not accept your credentials: log in again, or check the user of the context with kubectl config view --minify",
		},
	} {
		t.Run(name, func(t *testing.T) {
			lines := describeError(row.err)
			if got := lines[len(lines)-1]; got != row.want {
				t.Errorf("got %q, want %q", got, row.want)
			}
		})
	}
}
