package integration

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	yardmaster "github.com/yardmaster/yardmaster/applyconfiguration/api/v1alpha1"
	"github.com/yardmaster/yardmaster/clientset"
	typed "github.com/yardmaster/yardmaster/clientset/typed/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/require"
)

func TestProgramAppliesASequentialJobWithTheClientset(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	sequences := sequencesIn(t, ns)
	billing := metav1.ApplyOptions{FieldManager: "billing"}
	report := yardmaster.SequentialJob("report", ns).WithSpec(yardmaster.SequentialJobSpec().
		WithActiveDeadlineSeconds(600).
		WithTemplate(yardmaster.PodTemplate().WithAnnotations(map[string]string{simDuration: "1h"}).
			WithSecurityProfile(v1alpha1.SecurityRestricted)).
		WithContainers(yardmaster.Step().WithName("report").WithImage("app:1").
			WithStep(yardmaster.StepOptions().WithBackoffLimit(2))))
	if _, err := sequences.Apply(t.Context(), report, billing); err != nil {
		t.Fatal(err)
	}
	wantFieldsOfManager(t, sequences, "billing", `{"f:spec": {"f:activeDeadlineSeconds": {}, "f:containers": {},
		"f:template": {"f:metadata": {"f:annotations": {"f:`+simDuration+`": {}}}, "f:securityProfile": {}}}}`)

	// Another program sets another field, and cannot change those of the first one unless it forces that.
	other := yardmaster.SequentialJob("report", ns).WithSpec(yardmaster.SequentialJobSpec().WithTTLSecondsAfterFinished(3600))
	if _, err := sequences.Apply(t.Context(), other, metav1.ApplyOptions{FieldManager: "cleaner"}); err != nil {
		t.Fatal(err)
	}
	other.Spec.WithActiveDeadlineSeconds(60)
	if _, err := sequences.Apply(t.Context(), other, metav1.ApplyOptions{FieldManager: "cleaner"}); !apierrors.IsConflict(err) {
		t.Fatalf("a field of another program was changed: %v", err)
	}

	// What a program no longer sets is removed; the fields of others remain.
	report.Spec.ActiveDeadlineSeconds = nil
	applied, err := sequences.Apply(t.Context(), report, billing)
	require.NoError(t, err)
	if deadline := applied.Spec.ActiveDeadlineSeconds; deadline != nil {
		t.Errorf("activeDeadlineSeconds is still %d", *deadline)
	}
	if ttl := applied.Spec.TTLSecondsAfterFinished; ttl == nil || *ttl != 3600 {
		t.Errorf("ttlSecondsAfterFinished of the other program is %v", ttl)
	}
}

func TestProgramAppliesASequentialJobWithControllerRuntime(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	report := yardmaster.SequentialJob("report", ns).WithSpec(yardmaster.SequentialJobSpec().
		WithSuspend(true).WithContainers(yardmaster.Step().WithName("report").WithImage("app:1")))
	require.NoError(t, cluster.Apply(t.Context(), report, client.FieldOwner("billing")))
	wantFieldsOfManager(t, sequencesIn(t, ns), "billing", `{"f:spec": {"f:containers": {}, "f:suspend": {}}}`)
}

func sequencesIn(t *testing.T, ns string) typed.SequentialJobInterface {
	t.Helper()
	programs, err := clientset.NewForConfig(config)
	require.NoError(t, err)
	return programs.YardmasterV1alpha1().SequentialJobs(ns)
}

// wantFieldsOfManager checks which fields of the SequentialJob "report" belong to the manager.
func wantFieldsOfManager(t *testing.T, sequences typed.SequentialJobInterface, manager, want string) {
	t.Helper()
	sj, err := sequences.Get(t.Context(), "report", metav1.GetOptions{})
	require.NoError(t, err)
	for _, entry := range sj.ManagedFields {
		if entry.Manager != manager {
			continue
		}
		var got, wanted any
		require.NoError(t, json.Unmarshal(entry.FieldsV1.GetRawBytes(), &got))
		require.NoError(t, json.Unmarshal([]byte(want), &wanted))
		if diff := cmp.Diff(wanted, got); diff != "" {
			t.Errorf("fields of %s:\n%s", manager, diff)
		}
		return
	}
	t.Errorf("%s owns no fields of %s", manager, sj.Name)
}
