//go:build e2e

// Package e2e tests the operator as users install it: deployed by `make deploy` in the cluster
// of KUBECONFIG, which has a real node. `make e2e` starts such a cluster.
package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testenv"
)

const repositoryRoot = "../.."

// The tests' namespaces.
const (
	// watchedNamespace contains the sequences. It enforces the Pod Security Standard restricted.
	watchedNamespace = "e2e-watched"
	// unwatchedNamespace is a namespace that the operator does not watch.
	unwatchedNamespace = "e2e-unwatched"
	// reportedNamespace is not watched, but the operator reports on its Jobs.
	reportedNamespace = "e2e-reported"
	// Namespaces with queues and workers.
	disruptionNamespace = "e2e-disruption"
	// Namespaces of tests of WorkerPools.
	sidecarNamespace, commandNamespace      = "e2e-sidecar-workers", "e2e-command-workers"
	evictionNamespace, terminatingNamespace = "e2e-eviction", "e2e-terminating"
	adminNamespace, gatewayNamespace        = "e2e-admin-api", "e2e-gateway"
	releaseNamespace                        = "e2e-releases"
	// tenantNamespace is for users with a single permission.
	tenantNamespace = "e2e-tenants"
	// sessionsNamespace and deletionNamespace contain AgenticSessions; the second has a default queue of Kueue.
	sessionsNamespace, deletionNamespace = "e2e-sessions", "e2e-deleted-sessions"
	// hostileNamespace contains an AgenticSession. A test deletes it.
	hostileNamespace = "e2e-hostile-session"
	// unenforcedNamespace contains AgenticSessions whose NetworkPolicies the local cluster ignores.
	unenforcedNamespace = "e2e-unenforced"
	// attackerNamespace contains Pods that attack the operator, victimNamespace the objects of another
	// tenant meanwhile.
	attackerNamespace, victimNamespace = "e2e-attacker", "e2e-victim"
	// privilegedNamespace is for Pods that send signals to processes of the node, or measure them.
	privilegedNamespace = "e2e-privileged"
)

var queueNamespaces = append(soakNamespaces(),
	disruptionNamespace, sidecarNamespace, commandNamespace, evictionNamespace, terminatingNamespace,
	tenantNamespace, adminNamespace, gatewayNamespace, attackerNamespace, victimNamespace)

// soakNamespaces are those of tests that run with make soak only: each namespace has Roles, which deployments compare.
func soakNamespaces() []string {
	if !isSoaking() {
		return nil
	}
	return []string{releaseNamespace}
}

// exclusiveNamespaces are those of tests that need the operator exclusively. Few, because these tests deploy it often, and
// each namespace has Roles.
var exclusiveNamespaces = strings.Join([]string{
	watchedNamespace, sessionsNamespace, deletionNamespace, terminatingNamespace, attackerNamespace, victimNamespace,
}, ",")

var watchedNamespaces = strings.Join(append([]string{
	watchedNamespace, sessionsNamespace, deletionNamespace, hostileNamespace, unenforcedNamespace,
}, queueNamespaces...), ",")

// Clients of the cluster.
var (
	config    *rest.Config
	cluster   client.Client
	clientset *kubernetes.Clientset
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(zap.New(zap.WriteTo(io.Discard))) // the client returns errors
	testenv.Main(m, "make e2e", func(ctx context.Context, c *testenv.Cluster) (func() error, error) {
		config, cluster = c.Config, c
		return func() error { return checkNoDeniedWrites(context.Background()) }, deploy(ctx)
	})
}

// checkNoDeniedWrites returns an error if an admission policy denied the operator a write during the
// tests. None of them provokes that: test/integration does.
func checkNoDeniedWrites(ctx context.Context) error {
	metrics, err := clientset.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(metrics)) {
		isDenial := strings.HasPrefix(line, "apiserver_validating_admission_policy_check_total{") && strings.Contains(line, `enforcement_action="deny"`)
		for _, policy := range []string{"yardmaster-own-objects", "yardmaster-kube-system"} {
			if isDenial && strings.Contains(line, `policy="`+policy+`"`) {
				return fmt.Errorf("the admission policy %s denied the operator a write: %s", policy, line)
			}
		}
	}
	return nil
}

// deploy creates the namespaces and deploys the operator.
func deploy(ctx context.Context) (err error) {
	if clientset, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	profiles := map[string]string{
		watchedNamespace: "restricted", unwatchedNamespace: "restricted", reportedNamespace: "restricted",
		sessionsNamespace: "restricted", deletionNamespace: "restricted", hostileNamespace: "restricted", unenforcedNamespace: "restricted", privilegedNamespace: "privileged",
	}
	for _, name := range queueNamespaces {
		profiles[name] = "restricted"
	}
	for name, profile := range profiles {
		if err := createNamespace(ctx, name, profile); err != nil {
			return err
		}
	}
	return errors.Join(deployOperator(ctx, exclusiveNamespaces), waitForOperator(ctx))
}

// createNamespace creates a namespace that enforces a Pod Security Standard.
func createNamespace(ctx context.Context, name, profile string) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name:   name,
		Labels: map[string]string{"pod-security.kubernetes.io/enforce": profile},
	}}
	if name == unenforcedNamespace {
		ns.Labels["localcluster.dev/ignore-network-policies"] = "true"
	}
	return client.IgnoreAlreadyExists(cluster.Create(ctx, ns))
}

// watchNamespaces makes the operator watch the namespaces of all tests.
var watchNamespaces = sync.OnceValue(func() error {
	ctx := context.Background()
	return errors.Join(deployOperator(ctx, watchedNamespaces), waitForOperator(ctx))
})

// podNetwork contains the addresses of all Pods but those in the network of the node.
const podNetwork = "10.244.0.0/16"

// deployments is held by parallel tests that deploy the operator, for as long as they need what they deployed.
var deployments sync.Mutex

// deployOperator does what a user does to install or upgrade the operator, with more variables of make.
func deployOperator(ctx context.Context, namespaces string, variables ...string) error {
	args := append([]string{"deploy", "IMG=" + operatorImage(), "NAMESPACES=" + namespaces, "REPORT_NAMESPACES=" + reportedNamespace}, variables...)
	if err := runInRepository(ctx, "make", args...); err != nil {
		return err
	}
	settings := append([]string{"YARDMASTER_EGRESS_PROXY_NETWORKS=" + podNetwork}, shortThresholds...)
	set := newKubectlCommand(ctx, append([]string{"-n", operatorNamespace, "set", "env", "deployment/" + operatorName}, settings...)...)
	if output, err := set.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", set, err, output)
	}
	return nil
}

// operatorImage returns the name of the operator's image, which is loaded into the cluster.
func operatorImage() string {
	if img := os.Getenv("IMG"); img != "" {
		return img
	}
	return "yardmaster:dev"
}

// runInRepository runs a command in the repository's root. The error contains the command's output.
func runInRepository(ctx context.Context, name string, args ...string) error {
	var output bytes.Buffer
	command := exec.CommandContext(ctx, name, args...)
	command.Dir, command.Stdout, command.Stderr = repositoryRoot, &output, &output
	if err := command.Run(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, output.String())
	}
	return nil
}

// newKubectlCommand returns a command that runs kubectl, or that of localcluster if it is not in the PATH.
func newKubectlCommand(ctx context.Context, args ...string) *exec.Cmd {
	if path, err := exec.LookPath("kubectl"); err == nil {
		return exec.CommandContext(ctx, path, args...)
	}
	local := []string{"kubectl", "--name", os.Getenv("CLUSTER_NAME"), "--"}
	return exec.CommandContext(ctx, "localcluster", append(local, args...)...)
}

// readLog returns the log of a container; of the only one if none is named. The kubelet of a busy node does not answer each
// request in time.
func readLog(t *testing.T, namespace, pod, container string) string {
	t.Helper()
	var log []byte
	require.NoError(t, poll.UntilNil(t.Context(), func() (err error) {
		log, err = clientset.CoreV1().Pods(namespace).GetLogs(pod, &corev1.PodLogOptions{Container: container}).DoRaw(t.Context())
		if apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		return err
	}))
	return string(log)
}

func podsWith(t *testing.T, ns string, labels map[string]string) []corev1.Pod {
	t.Helper()
	var list corev1.PodList
	require.NoError(t, cluster.List(t.Context(), &list, client.InNamespace(ns), client.MatchingLabels(labels)))
	return list.Items
}

func objectExists(t *testing.T, object client.Object) bool {
	t.Helper()
	err := cluster.Get(t.Context(), client.ObjectKeyFromObject(object), object)
	if apierrors.IsNotFound(err) {
		return false
	}
	require.NoError(t, err)
	return true
}

// waitUntilDeleted waits until an object no longer exists.
func waitUntilDeleted(t *testing.T, object client.Object) {
	t.Helper()
	poll.Until(t, object.GetName()+" to be deleted", func() bool { return !objectExists(t, object) })
}
