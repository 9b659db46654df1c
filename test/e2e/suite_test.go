//go:build e2e

// Package e2e tests the operator as users have it: deployed by `make deploy` in a cluster
// with a real node, the one that KUBECONFIG leads to. `make e2e` brings one.
package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// repositoryRoot is the repository's, as seen from this package.
const repositoryRoot = "../.."

// The tests' namespaces.
const (
	// watchedNamespace is where the sequences are. It enforces the profile restricted.
	watchedNamespace = "e2e-watched"
	// deletedNamespace is watched too, and deleted by a test.
	deletedNamespace = "e2e-doomed"
	// unwatchedNamespace is a namespace that the operator ignores, unless it watches all.
	unwatchedNamespace = "e2e-unwatched"
	// reportedNamespace is not watched, but its Jobs are reported on.
	reportedNamespace = "e2e-reported"
	// Namespaces with queues and workers.
	rolloutNamespace, disruptionNamespace, undrainedNamespace, carelessNamespace = "e2e-queue-rollouts", "e2e-queue-disruption", "e2e-undrained", "e2e-careless"
	// Namespaces of tests of WorkerPools.
	sidecarNamespace, commandNamespace, canaryNamespace, missingImageNamespace      = "e2e-behind-http", "e2e-commands", "e2e-canaries", "e2e-pulled"
	statefulNamespace, preemptionNamespace, evictionNamespace, credentialsNamespace = "e2e-numbered", "e2e-preempted", "e2e-evicted", "e2e-logged-in"
	operatorRestartNamespace, terminatingNamespace                                  = "e2e-interrupted", "e2e-condemned"
	// sessionsNamespace is watched, and has the sessions of AI agents; dispersed has those that are
	// deleted all at once.
	sessionsNamespace, deletionNamespace = "e2e-conversing", "e2e-dispersed"
	// privilegedNamespace is for Pods that reach into the node.
	privilegedNamespace = "e2e-privileged"
)

// queueNamespaces are the namespaces with queues and workers.
var queueNamespaces = []string{
	rolloutNamespace, disruptionNamespace, undrainedNamespace, carelessNamespace,
	sidecarNamespace, commandNamespace, canaryNamespace, missingImageNamespace, statefulNamespace, preemptionNamespace, evictionNamespace, credentialsNamespace, operatorRestartNamespace, terminatingNamespace,
}

// What the operator is deployed to watch.
var watchedNamespaces = strings.Join(append([]string{watchedNamespace, deletedNamespace, sessionsNamespace, deletionNamespace}, queueNamespaces...), ",")

const allNamespaces = "*"

// What the tests have of the cluster.
var (
	config    *rest.Config
	cluster   client.Client
	clientset *kubernetes.Clientset
)

func TestMain(m *testing.M) {
	if os.Getenv("KUBECONFIG") == "" {
		fmt.Fprintln(os.Stderr, "KUBECONFIG is not set, so there is no cluster to test against: use make e2e")
		os.Exit(1)
	}
	ctrl.SetLogger(zap.New(zap.WriteTo(io.Discard))) // what the client has to say comes as errors
	if err := connectAndDeploy(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// connectAndDeploy connects to the cluster and deploys the operator.
func connectAndDeploy(ctx context.Context) (err error) {
	if config, err = clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG")); err != nil {
		return err
	}
	config.QPS, config.Burst = 200, 400
	config.WarningHandler = rest.NoWarnings{} // they are for people
	if clientset, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
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
	profiles := map[string]string{
		watchedNamespace: "restricted", deletedNamespace: "restricted", unwatchedNamespace: "restricted", reportedNamespace: "restricted",
		sessionsNamespace: "restricted", deletionNamespace: "restricted", privilegedNamespace: "privileged",
	}
	for _, name := range queueNamespaces {
		profiles[name] = "restricted"
	}
	for name, profile := range profiles {
		if err := createNamespace(ctx, name, profile); err != nil {
			return err
		}
	}
	if err := deployOperator(ctx, watchedNamespaces); err != nil {
		return err
	}
	return waitForOperator(ctx)
}

// createNamespace makes a namespace in which Pods have to keep to a profile.
func createNamespace(ctx context.Context, name, profile string) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name:   name,
		Labels: map[string]string{"pod-security.kubernetes.io/enforce": profile},
	}}
	if err := cluster.Create(ctx, ns); !apierrors.IsAlreadyExists(err) {
		return err
	}
	return nil
}

// deployOperator does what a user does to install or upgrade the operator.
func deployOperator(ctx context.Context, namespaces string) error {
	if err := runInRepository(ctx, "make", "deploy", "IMG="+operatorImage(), "NAMESPACES="+namespaces, "REPORT_NAMESPACES="+reportedNamespace); err != nil {
		return err
	}
	set := newKubectlCommand(ctx, append([]string{"-n", operatorNamespace, "set", "env", "deployment/" + operatorName}, shortThresholds...)...)
	if output, err := set.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", set, err, output)
	}
	return nil
}

// undeployOperator does what a user does to uninstall it.
func undeployOperator(ctx context.Context, namespaces string) error {
	return runInRepository(ctx, "make", "undeploy", "NAMESPACES="+namespaces, "REPORT_NAMESPACES="+reportedNamespace)
}

// operatorImage is the operator's, as loaded into the cluster.
func operatorImage() string {
	if img := os.Getenv("IMG"); img != "" {
		return img
	}
	return "yardmaster:dev"
}

// runInRepository runs a command in the repository's root. What it says matters only if it fails.
func runInRepository(ctx context.Context, name string, args ...string) error {
	var output bytes.Buffer
	command := exec.CommandContext(ctx, name, args...)
	command.Dir, command.Stdout, command.Stderr = repositoryRoot, &output, &output
	if err := command.Run(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, output.String())
	}
	return nil
}

// newKubectlCommand is a command that is kubectl, or does as well.
func newKubectlCommand(ctx context.Context, args ...string) *exec.Cmd {
	if path, err := exec.LookPath("kubectl"); err == nil {
		return exec.CommandContext(ctx, path, args...)
	}
	local := []string{"kubectl", "--name", os.Getenv("CLUSTER_NAME"), "--"}
	return exec.CommandContext(ctx, "localcluster", append(local, args...)...)
}

const (
	pollInterval = 100 * time.Millisecond
	// waitTimeout is for what takes a Pod or two; a busy machine needs a while for them.
	waitTimeout = 90 * time.Second
)

// eventually waits until condition holds.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), pollInterval, waitTimeout, true, func(context.Context) (bool, error) {
		return condition(), nil
	})
	if err != nil {
		t.Fatalf("waiting for %s: %v", what, err)
	}
}

// requireNoError ends the test on an error.
func requireNoError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// objectExists reads an object and reports whether there is one.
func objectExists(t *testing.T, object client.Object) bool {
	t.Helper()
	err := cluster.Get(t.Context(), client.ObjectKeyFromObject(object), object)
	if apierrors.IsNotFound(err) {
		return false
	}
	requireNoError(t, err)
	return true
}

// waitUntilDeleted waits until an object no longer exists.
func waitUntilDeleted(t *testing.T, object client.Object) {
	t.Helper()
	eventually(t, object.GetName()+" to be gone", func() bool { return !objectExists(t, object) })
}
