package integration

import (
	"encoding/json"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	yardmaster "github.com/yardmaster/yardmaster/applyconfiguration/api/v1alpha1"
	"github.com/yardmaster/yardmaster/clientset"
	typed "github.com/yardmaster/yardmaster/clientset/typed/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/require"
)

// One program uses the clientset, and another one controller-runtime.
func TestProgramsApplyTheirOwnFieldsOfASequentialJob(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	programs, err := clientset.NewForConfig(config)
	require.NoError(t, err)
	sequences, billing := programs.YardmasterV1alpha1().SequentialJobs(ns), metav1.ApplyOptions{FieldManager: "billing"}
	report := yardmaster.SequentialJob("report", ns).WithSpec(yardmaster.SequentialJobSpec().
		WithActiveDeadlineSeconds(600).
		WithTemplate(yardmaster.PodTemplate().WithAnnotations(map[string]string{simDuration: "1h"}).
			WithSecurityProfile(v1alpha1.SecurityRestricted)).
		WithContainers(yardmaster.Step().WithName("report").WithImage("app:1").
			WithStep(yardmaster.StepOptions().WithBackoffLimit(2))))
	_, err = sequences.Apply(t.Context(), report, billing)
	require.NoError(t, err)
	wantFieldsOfManager(t, sequences, "billing", `{"f:spec": {"f:activeDeadlineSeconds": {}, "f:containers": {},
		"f:template": {"f:metadata": {"f:annotations": {"f:`+simDuration+`": {}}}, "f:securityProfile": {}}}}`)

	// Another program sets another field, and cannot change those of the first one unless it forces that.
	clean := func(spec *yardmaster.SequentialJobSpecApplyConfiguration) error {
		return cluster.Apply(t.Context(), yardmaster.SequentialJob("report", ns).WithSpec(spec), client.FieldOwner("cleaner"))
	}
	require.NoError(t, clean(yardmaster.SequentialJobSpec().WithTTLSecondsAfterFinished(3600)))
	wantFieldsOfManager(t, sequences, "cleaner", `{"f:spec": {"f:ttlSecondsAfterFinished": {}}}`)
	if err := clean(yardmaster.SequentialJobSpec().WithTTLSecondsAfterFinished(3600).WithActiveDeadlineSeconds(60)); !apierrors.IsConflict(err) {
		t.Fatalf("a field of another program was changed: %v", err)
	}

	// What a program no longer sets is removed; the fields of others remain.
	report.Spec.ActiveDeadlineSeconds = nil
	applied, err := sequences.Apply(t.Context(), report, billing)
	require.NoError(t, err)
	require.Equal[*int64](t, nil, applied.Spec.ActiveDeadlineSeconds)
	require.Equal(t, new(int32(3600)), applied.Spec.TTLSecondsAfterFinished)
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
		assert.Equal(t, "fields of "+manager, wanted, got)
		return
	}
	t.Errorf("%s owns no fields of %s", manager, sj.Name)
}
