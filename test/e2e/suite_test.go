//go:build e2e

// Package e2e tests the operator as users install it: deployed by `make deploy` in the cluster
// of KUBECONFIG, which has a real node. `make e2e` starts such a cluster.
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

// root is the path of the repository's root.
const root = "../.."

// The tests' namespaces.
const (
	// watched contains the sequences. It enforces the Pod Security Standard restricted.
	watched = "e2e-watched"
	// doomed is watched too. A test deletes it.
	doomed = "e2e-doomed"
	// unwatched is a namespace that the operator watches only if it watches all namespaces.
	unwatched = "e2e-unwatched"
	// reported is not watched, but the operator reports on its Jobs.
	reported = "e2e-reported"
	// Namespaces with queues and workers.
	rolloutNamespace, disruptionNamespace, undrainedNamespace, carelessNamespace = "e2e-rollouts", "e2e-disruption", "e2e-without-drain", "e2e-early-ack"
	// Namespaces of tests of WorkerPools.
	behindHTTP, asCommands, canaries, pulled = "e2e-sidecar-workers", "e2e-command-workers", "e2e-canary", "e2e-missing-image"
	numbered, preempted, evicted, loggedIn   = "e2e-statefulset", "e2e-preemption", "e2e-eviction", "e2e-credentials"
	interrupted, condemned                   = "e2e-interrupted-drain", "e2e-terminating"
	// sessionsNamespace and deletionNamespace contain AgenticSessions. Those in deletionNamespace
	// are all deleted at once.
	sessionsNamespace, deletionNamespace = "e2e-sessions", "e2e-deleted-sessions"
	// privileged is for Pods that send signals to processes of the node.
	privileged = "e2e-privileged"
)

// queueNamespaces are the namespaces with queues and workers.
var queueNamespaces = []string{
	rolloutNamespace, disruptionNamespace, undrainedNamespace, carelessNamespace,
	behindHTTP, asCommands, canaries, pulled, numbered, preempted, evicted, loggedIn, interrupted, condemned,
}

// The namespaces that the operator watches in most tests.
var someNamespaces = strings.Join(append([]string{watched, doomed, sessionsNamespace, deletionNamespace}, queueNamespaces...), ",")

const allNamespaces = "*"

// Clients of the cluster.
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
	ctrl.SetLogger(zap.New(zap.WriteTo(io.Discard))) // the client returns errors
	if err := start(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// start connects to the cluster and deploys the operator.
func start(ctx context.Context) (err error) {
	if config, err = clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG")); err != nil {
		return err
	}
	config.QPS, config.Burst = 200, 400
	config.WarningHandler = rest.NoWarnings{} // warnings are for interactive clients
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
		watched: "restricted", doomed: "restricted", unwatched: "restricted", reported: "restricted",
		sessionsNamespace: "restricted", deletionNamespace: "restricted", privileged: "privileged",
	}
	for _, name := range queueNamespaces {
		profiles[name] = "restricted"
	}
	for name, profile := range profiles {
		if err := createNamespace(ctx, name, profile); err != nil {
			return err
		}
	}
	if err := deploy(ctx, someNamespaces); err != nil {
		return err
	}
	return waitForOperator(ctx)
}

// createNamespace creates a namespace that enforces a Pod Security Standard.
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

// deploy does what a user does to install or upgrade the operator.
func deploy(ctx context.Context, namespaces string) error {
	if err := run(ctx, "make", "deploy", "IMG="+image(), "NAMESPACES="+namespaces, "REPORT_NAMESPACES="+reported); err != nil {
		return err
	}
	set := kubectl(ctx, append([]string{"-n", operatorNamespace, "set", "env", "deployment/" + operatorName}, impatience...)...)
	if output, err := set.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", set, err, output)
	}
	return nil
}

// undeploy does what a user does to uninstall it.
func undeploy(ctx context.Context, namespaces string) error {
	return run(ctx, "make", "undeploy", "NAMESPACES="+namespaces, "REPORT_NAMESPACES="+reported)
}

// image returns the name of the operator's image, which is loaded into the cluster.
func image() string {
	if img := os.Getenv("IMG"); img != "" {
		return img
	}
	return "yardmaster:dev"
}

// run runs a command in the repository's root. The error contains the command's output.
func run(ctx context.Context, name string, args ...string) error {
	var output bytes.Buffer
	command := exec.CommandContext(ctx, name, args...)
	command.Dir, command.Stdout, command.Stderr = root, &output, &output
	if err := command.Run(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, output.String())
	}
	return nil
}

// kubectl returns a command that runs kubectl, or that of localcluster if it is not in the PATH.
func kubectl(ctx context.Context, args ...string) *exec.Cmd {
	if path, err := exec.LookPath("kubectl"); err == nil {
		return exec.CommandContext(ctx, path, args...)
	}
	local := []string{"kubectl", "--name", os.Getenv("CLUSTER_NAME"), "--"}
	return exec.CommandContext(ctx, "localcluster", append(local, args...)...)
}

const (
	often = 100 * time.Millisecond
	// patience is the time limit for conditions that need one or two Pods to start.
	patience = 90 * time.Second
)

// eventually waits until condition is true.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), often, patience, true, func(context.Context) (bool, error) {
		return condition(), nil
	})
	if err != nil {
		t.Fatalf("waiting for %s: %v", what, err)
	}
}

// must ends the test on an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// exists reads an object and reports whether it exists.
func exists(t *testing.T, object client.Object) bool {
	t.Helper()
	err := cluster.Get(t.Context(), client.ObjectKeyFromObject(object), object)
	if apierrors.IsNotFound(err) {
		return false
	}
	must(t, err)
	return true
}

// wantGone waits until an object no longer exists.
func wantGone(t *testing.T, object client.Object) {
	t.Helper()
	eventually(t, object.GetName()+" to be deleted", func() bool { return !exists(t, object) })
}
