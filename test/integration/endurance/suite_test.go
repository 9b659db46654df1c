// Package endurance tests that many consecutive sessions leave nothing behind, in the operator or in
// the cluster, and that many large objects do not fill the operator's memory. It needs the KUBECONFIG
// of a real API server, and no other operator may run there.
package endurance

import (
	"fmt"
	"testing"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/testbuilder"
	"github.com/yardmaster/yardmaster/test/testenv"
)

var cluster *testenv.Cluster

func TestMain(m *testing.M) { testenv.Main(m, "make test-integration", testenv.WithCRDs(&cluster)) }

// sessionsTest is a namespace with a SessionRunner.
type sessionsTest struct {
	t         *testing.T
	namespace string
}

func newSessionsTest(t *testing.T) *sessionsTest {
	t.Helper()
	ctrl.SetLogger(logr.Discard())
	s := &sessionsTest{t: t, namespace: cluster.NewNamespace(t, "endurance-", nil)}
	runner := &v1alpha1.SessionRunner{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: s.namespace}}
	runner.Spec.Image, testbuilder.RunnerPod(&runner.Spec).SecurityContext.RunAsUser, runner.Spec.ActivityLease = "runner:1", new(int64(65532)), true
	s.create(runner)
	return s
}

func (s *sessionsTest) create(object client.Object) {
	s.t.Helper()
	if err := cluster.Create(s.t.Context(), object); err != nil {
		s.t.Fatal(err)
	}
}

// newSession returns a new session with all optional features.
func (s *sessionsTest) newSession(i int) *v1alpha1.AgenticSession {
	session := &v1alpha1.AgenticSession{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("s%04d", i), Namespace: s.namespace}}
	session.Spec.Prompt, session.Spec.Interactive, session.Spec.Workspace = "do it", true, &v1alpha1.WorkspaceClaim{}
	return session
}
