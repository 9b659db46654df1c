package validation

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/sequentialjob"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// testSequentialJobValidator returns the validator in a cluster with these namespaces.
func testSequentialJobValidator(t *testing.T, namespaces ...runtime.Object) *specValidator[*v1alpha1.SequentialJob] {
	t.Helper()
	return sequentialJobValidator(newNamespaceLabels(fake.NewFakeClient(namespaces...)))
}

// started returns a SequentialJob whose first step is running.
func started(b *testbuilder.SequentialJobBuilder) *v1alpha1.SequentialJob {
	sj := b.Obj()
	sj.Status = sequentialjob.Decide(sequentialjob.Observation{
		SequentialJob: sj,
		Now:           time.Unix(1, 0),
		Answers:       sequentialjob.Answers{DryRun: &sequentialjob.DryRunResult{}},
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
			before: ended(twoSteps().Rerun("2", "test")),
			edit:   func(sj *v1alpha1.SequentialJob) { sj.Spec.TTLSecondsAfterFinished = new(int32(60)) },
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
	if err != nil || len(warnings) != 1 || !strings.Contains(warnings[0], `spec.containers[0], spec.containers[1]: the namespace enforces PodSecurity "restricted:latest"`) {
		t.Errorf("error %v, warnings %q", err, warnings)
	}
	if warnings, err := testSequentialJobValidator(t).ValidateCreate(t.Context(), twoSteps().Obj()); err != nil || len(warnings) > 0 {
		t.Errorf("in a namespace that cannot be read: error %v, warnings %q", err, warnings)
	}
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
