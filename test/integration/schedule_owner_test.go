package integration

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/schedule"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testenv"
)

// newReviewSchedule returns a Schedule of sessions whose template claims to be root's.
func newReviewSchedule(ns, name string) *v1alpha1.Schedule {
	return newScheduleOf(ns, name, func(spec *v1alpha1.ScheduleSpec) {
		spec.SequentialJob = nil
		spec.AgenticSession = &v1alpha1.ScheduleTemplate{Spec: runtime.RawExtension{Raw: []byte(`{"prompt": "review", "userContext": {"userID": "root"}}`)}}
	})
}

func patchSchedule(t *testing.T, c client.Client, s *v1alpha1.Schedule, patch string) {
	t.Helper()
	require.NoError(t, c.Patch(t.Context(), s, client.RawPatch(types.MergePatchType, []byte(patch))))
}

func wantOwner(t *testing.T, s *v1alpha1.Schedule, want string) {
	t.Helper()
	run, err := schedule.NewRun(s, &v1alpha1.ScheduledRun{Name: "run", ScheduledTime: &s.CreationTimestamp})
	require.NoError(t, err)
	session := &v1alpha1.AgenticSession{}
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(run.Object, session))
	if session.Spec.UserContext == nil || session.Spec.UserContext.UserID != want {
		t.Errorf("the sessions belong to %+v, want %s", session.Spec.UserContext, want)
	}
}

// testTemplateOwners checks that only a change of the template changes whose sessions they are.
func testTemplateOwners(t *testing.T, s *v1alpha1.Schedule) {
	t.Helper()
	ann, bob := clientOf(t, "ann"), clientOf(t, "bob")
	require.NoError(t, ann.Create(t.Context(), s))
	wantOwner(t, s, "ann")
	patchSchedule(t, bob, s, `{"spec": {"successfulRunsHistoryLimit": 2}}`)
	wantOwner(t, s, "ann")
	patchSchedule(t, bob, s, `{"spec": {"agenticSession": {"spec": {"userContext": null}}}}`) // as an applied manifest
	wantOwner(t, s, "ann")
	patchSchedule(t, bob, s, `{"spec": {"agenticSession": {"spec": {"prompt": "delete all", "userContext": null}}}}`)
	wantOwner(t, s, "bob")
	patchSchedule(t, bob, s, `{"spec": {"agenticSession": {"spec": {"userContext": {"userID": "ann"}}}}}`)
	wantOwner(t, s, "bob")
}

func TestScheduledSessionsBelongToTheUserWhoLastChangedTheirTemplate(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	createIfMissing(t, newUnschedulableRunner(t, ns))
	testTemplateOwners(t, newReviewSchedule(ns, "changes"))

	s := newReviewSchedule(ns, "review")
	require.NoError(t, clientOf(t, "ann").Create(t.Context(), s))
	test := &scheduleTest{t, s}
	test.waitUntil("the first observation", func(s *v1alpha1.Schedule) bool { return s.Status.Timetable != nil })
	test.makeDue(1)
	session := &v1alpha1.AgenticSession{}
	poll.Until(t, "the session", func() bool {
		last := test.read().Status.LastScheduleTime
		return last != nil && cluster.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: schedule.RunName(s, last.Time)}, session) == nil
	})
	if session.Spec.UserContext == nil || session.Spec.UserContext.UserID != "ann" || session.Spec.EnvironmentVariables["SCHEDULED_TIME"] == "" {
		t.Errorf("the session has the user %+v and the environment %v", session.Spec.UserContext, session.Spec.EnvironmentVariables)
	}
}

func TestOnlyTheOperatorCreatesSessionsOfAnotherUser(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	s := newReviewSchedule(ns, "review")
	mustCreate(t, s)
	session := sessionWithSpec(ns, "forged", map[string]any{"prompt": "do it", "userContext": map[string]any{"userID": "root"}})
	session.SetOwnerReferences(decision.ControllerReferences("Schedule", s))
	require.NoError(t, clientOf(t, "ann").Create(t.Context(), session))
	stored := &v1alpha1.AgenticSession{}
	if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(session), stored); err != nil || stored.Spec.UserContext.UserID != "ann" {
		t.Errorf("the session belongs to %+v: %v", stored.Spec.UserContext, err)
	}
}

func TestAdmissionPolicyRecordsTheOwnerOfScheduledSessions(t *testing.T) {
	const policyLabel = "test.yardmaster.dev/schedule-policy"
	installAdmissionPolicy(t, policyLabel)
	ns := newNamespace(t, map[string]string{testenv.WebhookLabel: "off", policyLabel: "on"})
	poll.Until(t, "the policies to be effective", func() bool {
		s := newReviewSchedule(ns, "effective")
		session := sessionWithSpec(ns, "effective", map[string]any{"prompt": "do it"})
		if err := errors.Join(cluster.Create(t.Context(), s, client.DryRunAll), cluster.Create(t.Context(), session, client.DryRunAll)); err != nil {
			t.Log(err) // for a while, policies do not know a new kind
			return false
		}
		return !strings.Contains(string(s.Spec.AgenticSession.Spec.Raw), `"root"`) && session.Object["spec"].(map[string]any)["userContext"] != nil
	})
	s := newReviewSchedule(ns, "review")
	testTemplateOwners(t, s)
	for name, test := range map[string]struct{ user, want string }{
		"by-the-operator": {"system:serviceaccount:default:yardmaster", "root"},
		"by-a-tenant":     {"system:serviceaccount:default:default", "system:serviceaccount:default:default"},
	} {
		session := sessionWithSpec(ns, name, map[string]any{"prompt": "do it", "userContext": map[string]any{"userID": "root"}})
		session.SetOwnerReferences(decision.ControllerReferences("Schedule", s))
		require.NoError(t, clientOf(t, test.user).Create(t.Context(), session))
		stored := &v1alpha1.AgenticSession{}
		if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(session), stored); err != nil || stored.Spec.UserContext.UserID != test.want {
			t.Errorf("the session %s belongs to %+v, want %s: %v", name, stored.Spec.UserContext, test.want, err)
		}
	}
}
