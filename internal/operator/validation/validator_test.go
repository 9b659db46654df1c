package validation

import (
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/require"
)

// wantValidated checks that a validator refuses an invalid object, unless it is already stored and its spec stays.
func wantValidated[T client.Object](t *testing.T, v *specValidator[T], valid, invalid T, field string) {
	t.Helper()
	ctx := byUser(t, authenticationv1.UserInfo{Username: "ann"})
	_, err := v.ValidateCreate(ctx, valid)
	wantFields(t, err, nil)
	_, err = v.ValidateCreate(ctx, invalid)
	wantFields(t, err, []string{field})
	_, err = v.ValidateUpdate(ctx, valid, invalid)
	wantFields(t, err, []string{field})
	labelled := invalid.DeepCopyObject().(T)
	labelled.SetLabels(map[string]string{"a": "b"})
	labelled.SetFinalizers(nil)
	_, err = v.ValidateUpdate(ctx, invalid, labelled)
	wantFields(t, err, nil)
}

func TestAnInvalidSpecIsRefusedUnlessItIsStoredAlready(t *testing.T) {
	wantValidated(t, QueueValidator, queueOf(v1alpha1.QueueSpec{}), queueOf(invalidQueueSpec()), "spec.maxInFlight")
	wantValidated(t, testSequentialJobValidator(t), twoSteps().Obj(), invalidSequence().Obj(), "spec.containers[2].image")

	pool := &v1alpha1.WorkerPool{ObjectMeta: metav1.ObjectMeta{Name: "readers"}, Spec: v1alpha1.WorkerPoolSpec{Image: "readers:1"}}
	reserved := pool.DeepCopy()
	reserved.Spec.Template = &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: v1alpha1.WorkerContainer, Env: []corev1.EnvVar{{Name: "YARDMASTER_POOL", Value: "mine"}},
	}}}}
	wantValidated(t, WorkerPoolValidator, pool, reserved, "spec.template.spec.containers[0].env[0].name")

	near := []metav1.LabelSelectorRequirement{{Key: "team", Operator: "Near"}}
	policy := &v1alpha1.Policy{Spec: v1alpha1.PolicySpec{Selector: &metav1.LabelSelector{MatchExpressions: near}}}
	wantValidated(t, PolicyValidator, &v1alpha1.Policy{}, policy, "spec.selector")
	large := map[string]string{"a": strings.Repeat("x", decision.MaxSpecBytes)}
	policy = &v1alpha1.Policy{Spec: v1alpha1.PolicySpec{Selector: &metav1.LabelSelector{MatchLabels: large}}}
	wantValidated(t, PolicyValidator, &v1alpha1.Policy{}, policy, "spec")

	runner := &v1alpha1.SessionRunner{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: "ns"}}
	runner.Spec.Image = "runner:1"
	session := agenticSession()
	session.Spec.EnvironmentVariables = map[string]v1alpha1.EnvironmentValue{"PATH": "x"}
	wantValidated(t, validatorWithObjects(t, runner), agenticSession(), session, "spec.environmentVariables[PATH]")
}

func TestOnlyTheStoredObjectProvesThatItIsBeingDeleted(t *testing.T) {
	now := metav1.Now()
	invalid := []string{"spec.maxInFlight"}
	for title, row := range map[string]struct {
		before, after *metav1.Time
		want          []string
	}{
		"an object that is not being deleted is validated":         {nil, nil, invalid},
		"a deletionTimestamp in the request changes nothing":       {nil, &now, invalid},
		"an object that is being deleted is not validated":         {&now, &now, nil},
		"an object whose deletionTimestamp the request omits, too": {&now, nil, nil},
	} {
		t.Run(title, func(t *testing.T) {
			before, after := queueOf(v1alpha1.QueueSpec{}), queueOf(invalidQueueSpec())
			before.DeletionTimestamp, after.DeletionTimestamp = row.before, row.after
			_, err := QueueValidator.ValidateUpdate(t.Context(), before, after)
			wantFields(t, err, row.want)
		})
	}
	created := queueOf(invalidQueueSpec())
	created.DeletionTimestamp = &now
	_, err := QueueValidator.ValidateCreate(t.Context(), created)
	wantFields(t, err, invalid)
}

func queueOf(spec v1alpha1.QueueSpec) *v1alpha1.Queue {
	return &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "mail"}, Spec: spec}
}

// invalidQueueSpec returns a spec whose maxInFlight is lower than the number of priorities.
func invalidQueueSpec() v1alpha1.QueueSpec {
	return v1alpha1.QueueSpec{
		MaxInFlight: new(int32(1)), Priorities: []v1alpha1.QueuePriority{{Name: "high", Share: v1alpha1.Share{Weight: 2}}, {Name: "low", Share: v1alpha1.Share{Weight: 1}}},
	}
}

func TestQueueWarningsAreThoseOfItsSpecItsEngineAndItsChange(t *testing.T) {
	before := queueOf(v1alpha1.QueueSpec{
		QueueSettings: v1alpha1.QueueSettings{Broker: &v1alpha1.Broker{Engine: v1alpha1.EngineAsynq}, RateLimit: &v1alpha1.RateLimit{Limit: 5}},
		Priorities:    invalidQueueSpec().Priorities,
	})
	after := before.DeepCopy()
	after.Spec.Priorities = after.Spec.Priorities[:1]
	warnings, err := QueueValidator.ValidateUpdate(t.Context(), before, after)
	require.NoError(t, err)
	for _, want := range []string{"spec.broker.engine: Asynq is", "spec.rateLimit: not enforced", "spec.priorities: low stays on the broker"} {
		require.Contains(t, strings.Join(warnings, "\n"), want)
	}
}

func TestWorkerPoolWarnings(t *testing.T) {
	wp := &v1alpha1.WorkerPool{}
	wp.Spec.Drain = &v1alpha1.Drain{Mode: v1alpha1.DrainSignal}
	wp.Spec.Autoscaling = &v1alpha1.Autoscaling{MaxReplicas: 1, Suspend: true}
	short := &v1alpha1.WorkerPool{}
	short.Spec.Drain = &v1alpha1.Drain{
		Timeout:          &v1alpha1.Duration{Duration: metav1.Duration{Duration: time.Minute}},
		TerminationGrace: &v1alpha1.Duration{Duration: metav1.Duration{Duration: time.Second}},
	}
	warned, err := WorkerPoolValidator.ValidateCreate(t.Context(), short)
	require.True(t, err == nil && len(warned) == 1 && strings.HasPrefix(warned[0], "spec.drain.terminationGrace: "), "%q, %v", warned, err)
	warnings, err := WorkerPoolValidator.ValidateCreate(t.Context(), wp)
	if err != nil || len(warnings) != 2 ||
		!strings.HasPrefix(warnings[0], "spec.drain.mode: ") || !strings.HasPrefix(warnings[1], "spec.autoscaling.suspend: ") {
		t.Errorf("%q, %v", warnings, err)
	}
}
