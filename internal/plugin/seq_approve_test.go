package plugin

import (
	"context"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// waitingSequence returns a SequentialJob whose step load waits for an approval.
func waitingSequence() *v1alpha1.SequentialJob {
	sj := failedSequence("etl")
	sj.Status.Phase, sj.Status.CompletionTime = v1alpha1.PhaseSuspended, nil
	sj.Status.Steps[1] = v1alpha1.StepStatus{Name: "load", Phase: v1alpha1.StepPending, Reason: v1alpha1.ReasonApprovalRequired}
	return sj
}

// newClientOf returns a client of a user.
func newClientOf(t *testing.T, user string, objects ...client.Object) client.WithWatch {
	t.Helper()
	return interceptor.NewClient(newFakeClient(t, objects...), interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, object client.Object, _ ...client.CreateOption) error {
			review, isReview := object.(*authenticationv1.SelfSubjectReview)
			if !isReview {
				t.Errorf("%T is created", object)
				return nil
			}
			review.Status.UserInfo.Username = user
			return nil
		},
	})
}

func TestApproveRecordsTheUserOfTheConnection(t *testing.T) {
	c := newClientOf(t, "ada", waitingSequence())
	code, out, errOut := runPluginWith(t, "seq approve etl", c)
	if code != exitSuccess || out != "sequentialjob.yardmaster.dev/etl: step load of run 1 approved by ada\n" {
		t.Fatalf("exit code %d, stdout %q, stderr %q", code, out, errOut)
	}
	sj := &v1alpha1.SequentialJob{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "a", Name: "etl"}, sj); err != nil {
		t.Fatal(err)
	}
	if got := sj.Annotations[v1alpha1.AnnotationApproval]; got != `{"run":1,"step":"load","by":"ada"}` {
		t.Errorf("annotation %s", got)
	}
}

func TestApproveWritesNothingIfTheStepDoesNotWait(t *testing.T) {
	for args, test := range map[string]struct {
		sj   *v1alpha1.SequentialJob
		want string
	}{
		"seq approve etl":                {failedSequence("etl"), "no step waits for an approval"},
		"seq approve etl --step=extract": {waitingSequence(), `step "load" waits for an approval`},
	} {
		code, _, errOut := runPluginWith(t, args, newClientOf(t, "ada", test.sj))
		if code != exitError || !strings.Contains(errOut, test.want) {
			t.Errorf("%s: exit code %d, stderr %q", args, code, errOut)
		}
	}
}

func TestRerunSetsParameters(t *testing.T) {
	sj := failedSequence("etl")
	sj.Spec.Parameters = []v1alpha1.Parameter{{Name: "DATE", Value: "2026-01-01"}}
	c := newFakeClient(t, sj)
	if code, _, errOut := runPluginWith(t, "seq rerun etl -p DAY=1", c); code != exitError || !strings.Contains(errOut, `spec.parameters has no "DAY"`) {
		t.Errorf("exit code %d, stderr %q", code, errOut)
	}
	if code, _, errOut := runPluginWith(t, "seq rerun etl -p DATE=2026-01-02", c); code != exitSuccess {
		t.Fatalf("exit code %d, stderr %q", code, errOut)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(sj), sj); err != nil {
		t.Fatal(err)
	}
	if got := sj.Spec.Rerun.Parameters; len(got) != 1 || got[0].Value != "2026-01-02" {
		t.Errorf("parameters %+v", got)
	}
}
