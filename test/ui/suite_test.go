package ui

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/require"
)

const repositoryRoot = "../.."

var (
	config  *rest.Config
	cluster client.Client
	// pluginPath is the built plugin.
	pluginPath string
)

func TestMain(m *testing.M) {
	if os.Getenv("KUBECONFIG") == "" {
		fmt.Println("KUBECONFIG is not set, so there is no cluster to test against: use make soak SOAK_PARTS=ui")
		return
	}
	dir, err := os.MkdirTemp("", "yardmaster-ui-")
	if err == nil {
		err = prepare(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

func prepare(dir string) error {
	pluginPath = filepath.Join(dir, "kubectl-yardmaster")
	build := exec.Command("go", "build", "-ldflags", "-s -w", "-o", pluginPath, "./cmd/kubectl-yardmaster")
	build.Dir = repositoryRoot
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building the plugin: %w: %s", err, out)
	}
	var err error
	if config, err = clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG")); err != nil {
		return err
	}
	config.QPS, config.Burst = 2000, 2000
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return err
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return err
	}
	if cluster, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	_, err = envtest.InstallCRDs(config, envtest.CRDInstallOptions{Paths: []string{filepath.Join(repositoryRoot, "config", "crd", "bases")}})
	return err
}

// newNamespace creates a namespace that is deleted after the test.
func newNamespace(t *testing.T, prefix string) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix}}
	require.NoError(t, cluster.Create(t.Context(), ns))
	t.Cleanup(func() { _ = cluster.Delete(context.Background(), ns) })
	return ns.Name
}
