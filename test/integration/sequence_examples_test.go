package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/sequentialjob"
	"github.com/yardmaster/yardmaster/test/require"
)

// The translations of examples of Argo Workflows and Tekton are applied with strict field validation, in a namespace
// that enforces the Pod Security Standard, if they claim to satisfy it, and run to their end with simulated Pods.
func TestTranslatedExamplesRun(t *testing.T) {
	t.Parallel()
	files := examples(t, "sequentialjob/*/*.yaml")
	require.True(t, len(files) >= 12, "%d examples", len(files))
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(filepath.Join(filepath.Base(filepath.Dir(file)), name), func(t *testing.T) {
			t.Parallel()
			raw, err := os.ReadFile(file)
			require.NoError(t, err)
			labels := map[string]string{}
			if strings.Contains(string(raw), "securityProfile: Restricted") {
				labels["pod-security.kubernetes.io/enforce"] = "restricted"
			}
			manifest, err := decode(raw)
			require.NoError(t, err)
			manifest.SetNamespace(newNamespace(t, labels))
			var warnings warningList
			require.NoError(t, apply(t.Context(), strictClient(t, &warnings), manifest, false))
			s := &sequenceTest{t: t, sj: &v1alpha1.SequentialJob{ObjectMeta: metav1.ObjectMeta{Namespace: manifest.GetNamespace(), Name: name}}}
			s.waitUntil("the end of the run", func(sj *v1alpha1.SequentialJob) bool {
				if step := sequentialjob.AwaitingApproval(sj); step != "" {
					s.approve()
				}
				return sequentialjob.IsFinished(&sj.Status)
			})
			if s.sj.Status.Phase != v1alpha1.PhaseCompleted {
				t.Error(describe(s.sj))
			}
		})
	}
}

// approve approves the step that waits, as an administrator.
func (s *sequenceTest) approve() {
	s.t.Helper()
	const user = "ada"
	approved := s.sj.DeepCopy()
	approval := sequentialjob.Approval{SequenceApproval: *s.sj.Status.Approval, By: user}
	require.NoError(s.t, approval.Write(approved))
	require.NoError(s.t, clientOf(s.t, user).Patch(s.t.Context(), approved, client.MergeFrom(s.sj.DeepCopy())))
}
