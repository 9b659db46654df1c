package plugin

import (
	"errors"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/follow"
)

func queueWithoutConnection() *v1alpha1.Queue {
	q := &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "orders", UID: "q"}}
	q.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: "ConnectionFailed", Message: "connection refused",
		LastTransitionTime: metav1.NewTime(testTime.Add(-time.Hour)),
	}}
	return q
}

func TestListWatchPrintsARowForEachChange(t *testing.T) {
	view := &rowView[*v1alpha1.Queue]{
		listCommand: &listCommand[*v1alpha1.Queue]{environment: &environment{now: func() time.Time { return testTime }}, kind: queueKind},
		objects:     map[client.ObjectKey]*v1alpha1.Queue{}, printed: map[client.ObjectKey]string{},
	}
	view.format = outputWide
	q := queueWithoutConnection()
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
