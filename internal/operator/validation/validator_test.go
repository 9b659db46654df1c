package validation

import (
	"context"
	"encoding/json"
	"errors"
	goruntime "runtime"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/sequentialjob"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
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
	warnings := require.Call(QueueValidator.ValidateUpdate(t.Context(), before, after)).Succeeds(t)
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
	isNamed := strings.HasPrefix(warnings[0], "spec.drain.mode: ") && strings.HasPrefix(warnings[1], "spec.autoscaling.suspend: ")
	require.True(t, err == nil && len(warnings) == 2 && isNamed, "%q, %v", warnings, err)
}

func agenticSession() *v1alpha1.AgenticSession {
	s := &v1alpha1.AgenticSession{ObjectMeta: metav1.ObjectMeta{Name: "fix", Namespace: "ns"}}
	s.Spec.Prompt, s.Spec.Runner = "do it", "default"
	s.Spec.UserContext = &v1alpha1.UserContext{UserID: "ann"}
	return s
}

func validatorWithObjects(t *testing.T, objects ...client.Object) *specValidator[*v1alpha1.AgenticSession] {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, v1alpha1.AddToScheme(scheme))
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	return agenticSessionValidator(c)
}

func byUser(t *testing.T, user authenticationv1.UserInfo) context.Context {
	t.Helper()
	return admission.NewContextWithRequest(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{UserInfo: user}})
}

// A session that the SessionRunner does not allow causes only a warning, because the SessionRunner may change before the session starts.
func TestAgenticSessionWarnings(t *testing.T) {
	runner := &v1alpha1.SessionRunner{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: "ns"}}
	runner.Spec.Image = "runner:1"
	other := agenticSession()
	other.Spec.Image = "evil:1"
	for title, row := range map[string]struct {
		v    *specValidator[*v1alpha1.AgenticSession]
		s    *v1alpha1.AgenticSession
		want string
	}{
		"an image that is not allowed": {validatorWithObjects(t, runner), other, "spec.image: "},
		"no SessionRunner":             {validatorWithObjects(t), agenticSession(), "spec.runner: "},
		"no warning":                   {validatorWithObjects(t, runner), agenticSession(), ""},
	} {
		t.Run(title, func(t *testing.T) {
			warnings, err := row.v.ValidateCreate(t.Context(), row.s)
			wantFields(t, err, nil)
			got := strings.Join(warnings, "; ")
			require.True(t, strings.HasPrefix(got, row.want) && (row.want == "") == (got == ""), "warnings %q, want %q", got, row.want)
		})
	}
	running := agenticSession()
	running.Status.Run = 1
	rerun := running.DeepCopy()
	rerun.Spec.Rerun = &v1alpha1.Rerun{ID: "2"}
	warnings, _ := validatorWithObjects(t, runner).ValidateUpdate(byUser(t, authenticationv1.UserInfo{Username: "ann"}), running, rerun)
	require.True(t, len(warnings) == 1 && strings.HasPrefix(warnings[0], "spec.rerun: "), "warnings %q", warnings)
}

// The API server validates a session after this webhook, which must not fail on any shape of it.
func TestSessionOfAnyShapeRecordsItsCreator(t *testing.T) {
	const plain, bobs, ann, bob = `{"spec":{"prompt":"a"}}`, `{"spec":{"userContext":{"userID":"bob"}}}`, `{"userID":"ann"}`, `{"userID":"bob"}`
	for title, row := range map[string]struct{ before, after, want string }{ // before is empty if ann creates the session
		"a new session without a user":                       {"", plain, ann},
		"a new session that claims another user":             {"", bobs, ann},
		"a new session that claims to be deleted":            {"", `{"metadata":{"deletionTimestamp":"2027-01-01T00:00:00Z"},` + bobs[1:], ann},
		"a new session without a spec":                       {"", `{"metadata":{"name":"fix"}}`, ""},
		"a spec that is null":                                {"", `{"spec":null}`, ""},
		"a spec that is a list":                              {"", `{"spec":[]}`, ""},
		"a userContext that is a list":                       {"", `{"spec":{"userContext":[]}}`, ann},
		"a name that is a number":                            {"", `{"spec":{"userContext":{"userID":1}}}`, ann},
		"a field that differs in case":                       {"", `{"spec":{"UserContext":{"userID":"bob"}}}`, ann},
		"an update by another user keeps the creator":        {bobs, plain, bob},
		"an update with a user is left to the API server":    {bobs, `{"spec":{"userContext":{"userID":"ann"}}}`, ""},
		"an update of a session created without the webhook": {plain, plain, ""},
	} {
		t.Run(title, func(t *testing.T) {
			request := admissionv1.AdmissionRequest{
				Operation: admissionv1.Create, UserInfo: authenticationv1.UserInfo{Username: "ann"}, Object: runtime.RawExtension{Raw: []byte(row.after)},
			}
			if row.before != "" {
				request.Operation, request.OldObject.Raw = admissionv1.Update, []byte(row.before)
			}
			response := sessionCreatorHandler{}.Handle(t.Context(), admission.Request{AdmissionRequest: request})
			require.True(t, response.Allowed, "%+v", response.Result)
			recorded := ""
			for _, patch := range response.Patches {
				value := require.Call(json.Marshal(patch.Value)).Succeeds(t)
				require.Equal(t, "/spec/userContext", patch.Path)
				recorded += string(value)
			}
			require.Equal(t, row.want, recorded)
		})
	}
}

// A session has many fields, of which the webhook reads one.
func TestRecordingTheCreatorDoesNotDecodeTheWholeSession(t *testing.T) {
	const sessionBytes = 3 << 20
	object := []byte(`{"spec":{"items":[` + strings.Repeat(`{},`, sessionBytes/3) + `{}]}}`)
	request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Operation: admissionv1.Create}}
	request.Object.Raw = object
	var before, after goruntime.MemStats
	goruntime.ReadMemStats(&before)
	response := sessionCreatorHandler{}.Handle(t.Context(), request)
	require.True(t, response.Allowed, "%+v", response)
	goruntime.ReadMemStats(&after)
	require.True(t, after.TotalAlloc-before.TotalAlloc <= 3*sessionBytes, "%d bytes allocated", after.TotalAlloc-before.TotalAlloc)
}

// testSequentialJobValidator returns the validator in a cluster with these namespaces.
func testSequentialJobValidator(t *testing.T, namespaces ...runtime.Object) *specValidator[*v1alpha1.SequentialJob] {
	t.Helper()
	return sequentialJobValidator(newNamespaceLabels(fake.NewFakeClient(namespaces...)))
}

// started returns a SequentialJob whose first step is running.
func started(b *testbuilder.SequentialJobBuilder) *v1alpha1.SequentialJob {
	sj := b.Obj()
	sj.Status = sequentialjob.Decide(sequentialjob.Observation{
		SequentialJob: sj, Now: time.Unix(1, 0), Answers: sequentialjob.Answers{DryRun: &sequentialjob.DryRunResult{}},
	}).Status
	return sj
}

// ended returns a SequentialJob whose run has failed in the first step.
func ended(b *testbuilder.SequentialJobBuilder) *v1alpha1.SequentialJob {
	sj := started(b)
	sj.Status.Steps[0].Phase = v1alpha1.StepFailed
	sj.Status.CompletionTime = new(metav1.NewTime(time.Unix(2, 0)))
	return sj
}

func twoSteps() *testbuilder.SequentialJobBuilder {
	return testbuilder.SequentialJob("a", "ns").Step("build").Step("test")
}

func TestASequentialJobOfAnotherManagerIsNotValidated(t *testing.T) {
	_, err := testSequentialJobValidator(t).ValidateCreate(t.Context(), invalidSequence().ManagedBy("acme.io/controller").Obj())
	wantFields(t, err, nil)
}

func invalidSequence() *testbuilder.SequentialJobBuilder {
	return twoSteps().Step("ship", testbuilder.StepImage(""))
}

func TestObjectThatEtcdCannotStoreIsRefused(t *testing.T) {
	sj := twoSteps().Obj()
	sj.Annotations = map[string]string{"note": strings.Repeat("x", 200_000)}
	sj.Spec.Containers[0].Args = []string{strings.Repeat("x", 790_000)}
	_, err := testSequentialJobValidator(t).ValidateCreate(t.Context(), sj)
	wantFields(t, err, nil)
	sj.Spec.Containers[1].Args = []string{strings.Repeat("x", 20_000)}
	_, err = testSequentialJobValidator(t).ValidateCreate(t.Context(), sj)
	wantFields(t, err, []string{"spec"})
}

// TestStartedStepsAreImmutable and TestInvalidReruns have the rules.
func TestInvalidSequentialJobIsRefusedOnUpdate(t *testing.T) {
	for name, test := range map[string]struct {
		before *v1alpha1.SequentialJob
		edit   func(*v1alpha1.SequentialJob)
		want   []string
	}{
		"a started step cannot change together with the status": {
			before: started(twoSteps()),
			edit: func(sj *v1alpha1.SequentialJob) {
				sj.Spec.Containers[0].Image = "other"
				sj.Status = v1alpha1.SequentialJobStatus{}
			},
			want: []string{"spec.containers[0]"},
		},
		"an impossible rerun": {
			before: ended(twoSteps()),
			edit: func(sj *v1alpha1.SequentialJob) {
				sj.Spec.Rerun = &v1alpha1.SequenceRerun{Rerun: v1alpha1.Rerun{ID: "2"}, From: "test"}
			},
			want: []string{"spec.rerun"},
		},
		"a stored impossible rerun does not prevent other changes": {
			before: ended(twoSteps().Rerun("2", "test")), edit: func(sj *v1alpha1.SequentialJob) { sj.Spec.TTLSecondsAfterFinished = new(int32(60)) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			after := test.before.DeepCopy()
			test.edit(after)
			_, err := testSequentialJobValidator(t).ValidateUpdate(t.Context(), test.before, after)
			wantFields(t, err, test.want)
		})
	}
}

func TestSequentialJobWarnings(t *testing.T) {
	command := testbuilder.ChangeContainer(func(c *corev1.Container) { c.Command = []string{"make"} })
	args := testbuilder.ChangeContainer(func(c *corev1.Container) { c.Args = []string{"all"} })
	mount := testbuilder.ChangeContainer(func(c *corev1.Container) {
		c.VolumeMounts = []corev1.VolumeMount{{Name: "scratch", MountPath: "/workspace"}}
	})
	parallel := testbuilder.WithStepOptions(func(o *v1alpha1.StepOptions) { o.Parallelism = new(int32(2)) })
	template := corev1.Container{Image: "base", Args: []string{"-v"}}
	readWriteOncePod := testbuilder.SequentialJob("a", "ns").Step("build", parallel).Workspace(v1alpha1.WorkspaceDelete).Obj()
	readWriteOncePod.Spec.Workspace.AccessMode = corev1.ReadWriteOncePod

	for name, test := range map[string]struct {
		sj   *v1alpha1.SequentialJob
		want []string
	}{
		"no warning": {sj: twoSteps().Obj()},
		"a command combined with the template's args": {
			sj:   testbuilder.SequentialJob("a", "ns").Step("build", command).Defaults(template).Obj(),
			want: []string{"spec.containers[0].command: the step uses the args of spec.template; set args too unless they are meant for this command"},
		},
		"a command with its own args": {sj: testbuilder.SequentialJob("a", "ns").Step("build", command, args).Defaults(template).Obj()},
		"a mount that replaces the workspace": {
			sj:   testbuilder.SequentialJob("a", "ns").Step("build").Finally("cleanup", mount).Workspace(v1alpha1.WorkspaceDelete).Obj(),
			want: []string{"spec.containers[1].volumeMounts[0]: this mount replaces the workspace in this step"},
		},
		"two Pods with a ReadWriteOncePod workspace": {
			sj:   readWriteOncePod,
			want: []string{"spec.containers[0].step.parallelism: only one Pod at a time can use a workspace with accessMode ReadWriteOncePod"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, test.want, []string(sequentialJobWarnings(t.Context(), newNamespaceLabels(fake.NewFakeClient()), test.sj)))
		})
	}
}

// wantFields compares the fields that an error names. An empty list means no error.
func wantFields(t *testing.T, err error, want []string) {
	t.Helper()
	var got []string
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		for _, cause := range status.Status().Details.Causes {
			got = append(got, cause.Field)
		}
	} else if err != nil {
		t.Fatalf("want an Invalid error, got %v", err)
	}
	require.Equal(t, want, got)
}

func TestWarningsNameWhatTheNamespaceRefuses(t *testing.T) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns", Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}}}
	warnings, err := testSequentialJobValidator(t, namespace).ValidateCreate(t.Context(), twoSteps().Obj())
	require.True(t, err == nil && len(warnings) == 1, "error %v, warnings %q", err, warnings)
	require.Contains(t, warnings[0], `spec.containers[0], spec.containers[1]: the namespace enforces PodSecurity "restricted:latest"`)
	warnings, err = testSequentialJobValidator(t).ValidateCreate(t.Context(), twoSteps().Obj())
	require.True(t, err == nil && len(warnings) == 0, "in a namespace that cannot be read: error %v, warnings %q", err, warnings)
}

func TestNamespacesAreReadOnceInHalfAMinute(t *testing.T) {
	reads := 0
	reader := interceptor.NewClient(fake.NewFakeClient(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}}), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			reads++
			return c.Get(ctx, key, object, options...)
		},
	})
	namespaces := newNamespaceLabels(reader)
	for range 10 {
		namespaces.get(t.Context(), "ns")
	}
	require.Equal(t, 1, reads)
}
