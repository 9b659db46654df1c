// Package endurance tests that many consecutive sessions leave nothing behind, in the operator or in
// the cluster. It needs the KUBECONFIG of a real API server, and no other operator may run there.
package endurance

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

const (
	root     = "../../.."
	patience = 20 * time.Minute
)

// testEnv is a namespace of a cluster, with a SessionRunner.
type testEnv struct {
	client.Client

	t         *testing.T
	config    *rest.Config
	namespace string
}

func newTestEnv(t *testing.T) *testEnv {
	t.Helper()
	if os.Getenv("KUBECONFIG") == "" {
		t.Skip("KUBECONFIG is not set, so there is no cluster to test against: use make test-integration")
	}
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	ctrl.SetLogger(logr.Discard())
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	cluster, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	s := &testEnv{Client: cluster, t: t, config: config}
	s.installCRDs()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "endurance-"}}
	s.create(ns)
	t.Cleanup(func() { _ = cluster.Delete(context.Background(), ns) })
	s.namespace = ns.Name
	runner := &v1alpha1.SessionRunner{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: s.namespace}}
	runner.Spec.Image, runner.Spec.RunAsUser, runner.Spec.ActivityLease = "runner:1", new(int64(65532)), true
	s.create(runner)
	return s
}

func (s *testEnv) create(object client.Object) {
	s.t.Helper()
	if err := s.Create(s.t.Context(), object); err != nil {
		s.t.Fatal(err)
	}
}

// installCRDs installs all kinds, and waits until they are served.
func (s *testEnv) installCRDs() {
	s.t.Helper()
	options := envtest.CRDInstallOptions{Paths: []string{filepath.Join(root, "config", "crd", "bases")}, ErrorIfPathMissing: true, MaxTime: time.Minute}
	if _, err := envtest.InstallCRDs(s.config, options); err != nil {
		s.t.Fatal(err)
	}
}

// newSession returns a new session with all optional features.
func (s *testEnv) newSession(i int) *v1alpha1.AgenticSession {
	session := &v1alpha1.AgenticSession{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("s%04d", i), Namespace: s.namespace}}
	session.Spec.Prompt, session.Spec.Interactive, session.Spec.Workspace = "do it", true, &v1alpha1.SessionWorkspace{}
	return session
}

// eventually waits until condition is true.
func (s *testEnv) eventually(what string, condition func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !condition(); {
		if time.Now().After(deadline) {
			s.t.Fatal("waiting for " + what)
		}
		pause(s.t.Context())
	}
}

func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(50 * time.Millisecond):
	}
}
