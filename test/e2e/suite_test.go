//go:build e2e

// Package e2e tests the operator as users install it: deployed by `make deploy` in the cluster
// of KUBECONFIG, which has a real node. `make e2e` starts such a cluster.
package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
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
	watchedNamespace   = "e2e-watched"         // of the sequences; it enforces the Pod Security Standard restricted
	unwatchedNamespace = "e2e-unwatched"       // the operator does not watch it
	reportedNamespace  = "e2e-reported"        // not watched, but the operator reports on its Jobs
	tenantNamespace    = "e2e-tenants"         // of users with a single permission
	hostileNamespace   = "e2e-hostile-session" // with an AgenticSession; a test deletes it
	// With AgenticSessions. The second has a default queue of Kueue, and the local cluster ignores the NetworkPolicies of the third.
	sessionsNamespace, deletionNamespace, unenforcedNamespace = "e2e-sessions", "e2e-deleted-sessions", "e2e-unenforced"
	// With queues and workers.
	disruptionNamespace, sidecarNamespace, commandNamespace = "e2e-disruption", "e2e-sidecar-workers", "e2e-command-workers"
	evictionNamespace, terminatingNamespace                 = "e2e-eviction", "e2e-terminating"
	adminNamespace, gatewayNamespace, releaseNamespace      = "e2e-admin-api", "e2e-gateway", "e2e-releases"
	// With Pods that attack the operator, with the objects of another tenant meanwhile, and with Pods that send signals to processes
	// of the node, or measure them.
	attackerNamespace, victimNamespace, privilegedNamespace = "e2e-attacker", "e2e-victim", "e2e-privileged"
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

// exclusiveNamespaces are those of tests that need the operator exclusively. Few, because these tests deploy it often, and each namespace has Roles.
var exclusiveNamespaces = strings.Join([]string{
	watchedNamespace, sessionsNamespace, deletionNamespace, terminatingNamespace, attackerNamespace, victimNamespace,
}, ",")

var watchedNamespaces = strings.Join(append([]string{
	watchedNamespace, sessionsNamespace, deletionNamespace, hostileNamespace, unenforcedNamespace,
}, queueNamespaces...), ",")

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
	if line := deniedWrite.Find(metrics); line != nil {
		return fmt.Errorf("an admission policy denied the operator a write: %s", line)
	}
	return nil
}

var deniedWrite = regexp.MustCompile(`(?m)^apiserver_validating_admission_policy_check_total\{.*enforcement_action="deny".*` +
	`policy="yardmaster-(own-objects|kube-system)".*$`)

func deploy(ctx context.Context) (err error) {
	if clientset, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	for _, name := range append(strings.Split(watchedNamespaces, ","), unwatchedNamespace, reportedNamespace, privilegedNamespace) {
		if err := createNamespace(ctx, name); err != nil {
			return err
		}
	}
	return errors.Join(deployOperator(ctx, exclusiveNamespaces), waitForOperator(ctx))
}

func createNamespace(ctx context.Context, name string) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}}}
	switch name {
	case privilegedNamespace:
		ns.Labels["pod-security.kubernetes.io/enforce"] = "privileged"
	case unenforcedNamespace:
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
	args := []string{"deploy", "IMG=" + cmp.Or(os.Getenv("IMG"), "yardmaster:dev"), "NAMESPACES=" + namespaces, "REPORT_NAMESPACES=" + reportedNamespace}
	args = append(args, variables...)
	if err := runInRepository(ctx, "make", args...); err != nil {
		return err
	}
	settings := []string{"-n", operatorNamespace, "set", "env", "deployment/" + operatorName, "YARDMASTER_EGRESS_PROXY_NETWORKS=" + podNetwork}
	set := newKubectlCommand(ctx, append(settings, shortThresholds...)...)
	if output, err := set.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", set, err, output)
	}
	return nil
}

// runInRepository runs a command in the repository's root. The error contains the command's output.
func runInRepository(ctx context.Context, name string, args ...string) error {
	command := exec.CommandContext(ctx, name, args...)
	command.Dir = repositoryRoot
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", command, err, output)
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

func applyManifest(t *testing.T, ns, manifest string) {
	t.Helper()
	command := newKubectlCommand(t.Context(), "apply", "-n", ns, "-f", "-")
	command.Stdin = strings.NewReader(manifest)
	output, err := command.CombinedOutput()
	require.True(t, err == nil, "kubectl apply: %v: %s", err, output)
}

// readLog returns the log of a container; of the only one if none is named. The kubelet of a busy node does not answer each request in time.
func readLog(t *testing.T, namespace, pod, container string) string {
	t.Helper()
	var log []byte
	require.NoError(t, poll.UntilNil(t.Context(), func() (err error) {
		log, err = clientset.CoreV1().Pods(namespace).GetLogs(pod, &corev1.PodLogOptions{Container: container}).DoRaw(t.Context())
		require.True(t, !apierrors.IsNotFound(err), "%v", err)
		return err
	}))
	return string(log)
}

// get reads an object.
func get[T client.Object](t *testing.T, object T, key client.ObjectKey) T {
	t.Helper()
	require.NoError(t, cluster.Get(t.Context(), key, object))
	return object
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
	require.NoError(t, client.IgnoreNotFound(err))
	return err == nil
}

func waitUntilDeleted(t *testing.T, object client.Object) {
	t.Helper()
	poll.Until(t, object.GetName()+" to be deleted", func() bool { return !objectExists(t, object) })
}

// Tests that call besideOthers leave the operator as it is. They start when the others have ended, which need the operator
// exclusively: they restart, replace or measure it. Then as many scenarios of all these tests run at once as go test's flag
// -parallel says: most of them wait.

// scenario is a subtest: a title that states the expected behavior, and its function.
type scenario struct {
	title string
	run   func(*testing.T)
}

func TestSteps(t *testing.T) {
	besideOthers(t)
	runInParallel(t, []scenario{
		{"a step whose Pod is evicted runs again before the next step starts, although its program exits with 0 on SIGTERM", testEviction("")},
		{"so does one that restarts its containers", testEviction(corev1.RestartPolicyOnFailure)},
		{"immediate suspension sends SIGTERM to the running step, which runs again when the run is resumed", testImmediateSuspension},
		{"the exit code and the message of a container that is restarted are recorded", testExitCodeOfARestartedContainer},
		{"a container that a policy adds does not hide the end of the step", testContainerThatAPolicyAdds},
		{"the logs of a run are in the archive after the SequentialJob was deleted", testArchivedLogs},
		{"seq logs -f prints each line of each step once, in order, and ends with the run", testPluginFollowsLogs},
		{"deletion sends SIGTERM to the running step, and the SequentialJob is deleted only after its Pod", testSequenceDeletion},
	})
}

func TestInstallation(t *testing.T) {
	besideOthers(t)
	runInParallel(t, []scenario{
		{"the operator runs in a namespace that enforces the Pod Security Standard restricted", testOperatorIsRestricted},
		{"metrics require authentication and authorization", testMetricsRequireAuthorization},
		{"the operator can patch finalizers outside watched namespaces, but not the spec", testOperatorCannotChangeSpecs},
	})
}

// TestPermissions tests what the permission to create one kind grants, and what it does not: the table in docs/security.md.
func TestPermissions(t *testing.T) {
	besideOthers(t)
	runOneByOne(t, []scenario{
		{"create SequentialJobs: run any Pod that the namespace admits, with any of its Secrets", testSequentialJobPermission},
		{"create Schedules: run what SequentialJobs run", testSchedulePermission},
		{"create Queues: use the brokers of the namespace, but see no Secret", testQueuePermission},
		{"create WorkerPools: run any Pod that the namespace admits, with any of its Secrets", testWorkerPoolPermission},
		{"create Policies: restrict others, but run nothing", testPolicyPermission},
		{"create AgenticSessions: run what a SessionRunner allows", testAgenticSessionPermission},
		{"create SessionRunners: run nothing, and never allow root", testSessionRunnerPermission},
	})
}

func TestJobReport(t *testing.T) {
	besideOthers(t)
	createJobFixtures(t)
	runInParallel(t, []scenario{
		{"each stale Job is reported with the right reason, and no Job is changed", testOperatorReportsStaleJobs},
		{"the plugin explains the cause of each stale Job by its Pods and events", testPluginExplainsStaleJobs},
	})
}

func TestDisturbances(t *testing.T) {
	runOneByOne(t, []scenario{
		{"the certificate authority is renewed while all requests succeed, without a restart", testCertificateAuthorityIsRenewed},
		{"a rolling restart transfers the Lease within 10 s, and no webhook request fails", testRollingRestart},
		{"the second replica becomes the leader when the leader hangs, and when it is killed", testFailover},
	})
}

func TestQueues(t *testing.T) {
	besideOthers(t)
	runInParallel(t, []scenario{{"no job is lost when workers and the broker are killed, and few are repeated", testNoJobIsLostWhenPodsAreKilled}})
}

func TestWorkers(t *testing.T) {
	besideOthers(t)
	runInParallel(t, []scenario{
		{"an HTTP server with the sidecar loses no job during scaling and rollouts; 503 is retried, 400 is dead-lettered", testSidecarWorkers},
		{"a command runs once for each job, and completes its job after SIGTERM", testCommandWorkers},
		{"an evicted worker finishes its jobs, and only one is evicted at a time", testEvictionDrainsWorkers},
		{"other Pods can neither drain workers nor end them, and only their admin port is closed", testAdminAPI},
	})
}

func TestGateway(t *testing.T) {
	besideOthers(t)
	runOneByOne(t, []scenario{
		{"a Pod with a token and the permission sends a job through the gateway, and the plugin shows that a worker did it", testGateway},
	})
}

func TestReleases(t *testing.T) {
	skipUnlessSoaking(t)
	besideOthers(t)
	testReleases(t)
}

func TestSessions(t *testing.T) {
	besideOthers(t)
	runInParallel(t, []scenario{
		{"a session completes with the result and the cost that its runner reports", testSessionResult},
		{"a runner has no root user, capabilities or token, and can write only to its own directories", testSessionConfined},
		{"a runner reads only the keys and tokens that its SessionRunner lists, and the identifier that the run before wrote", testSessionSecrets},
		{"a session with all features satisfies the profile restricted, answers allowed Pods, and completes beside its sidecar", testSessionRestricted},
		{"a session without activity is stopped, and one whose runner renews its Lease is not", testSessionIdle},
		{"an invalid configuration fails the session at startupTimeout with the reason in its message", testSessionMisconfigured},
		{"an evicted session continues in its workspace and does not use a retry", testSessionEvicted},
		{"an agent opens a pull request, its cost is in the status, and credentials are only where they belong", testAgentOpensAPullRequest},
		{"an agent answers the plugin", testAgentAnswersThePlugin},
	})
}

func TestSessionNetwork(t *testing.T) {
	besideOthers(t)
	runInParallel(t, []scenario{
		{"a session can connect only to its SessionRunner's egress and to the cluster's DNS", testSessionEgress},
		{"only Pods that ingressFrom selects can connect to an interactive session, and none to other sessions", testSessionIngress},
		{"a session reaches the hosts of its SessionRunner through the proxy, and no other host, address or DNS", testSessionHosts},
		{"no packet of a hostile session leaves its Pod: while it runs, is stopped or deleted, and after its policy is deleted", testHostileSessions},
		{"no packet of a hostile session leaves its Pod while its namespace is deleted", testHostileSessionInDeletedNamespace},
		{"where NetworkPolicies are ignored, a session reports that, and starts only if its SessionRunner allows it", testPoliciesIgnored},
	})
}

// TestDeletedSessions tests that the objects of many sessions are deleted with them in time. TestSessionNetwork deletes single ones.
func TestDeletedSessions(t *testing.T) {
	skipUnlessSoaking(t)
	besideOthers(t)
	runInParallel(t, []scenario{{"all objects of many sessions that ignore SIGTERM are deleted with the sessions", testSessionsDeleted}})
}

// TestDeletedSessionsWithoutOperator tests that the objects of deleted sessions are deleted, and their Pods isolated, while no operator runs.
func TestDeletedSessionsWithoutOperator(t *testing.T) {
	skipUnlessSoaking(t)
	runOneByOne(t, []scenario{
		{"all objects of many sessions that ignore SIGTERM are deleted without the operator", testSessionsDeletedWithoutOperator},
		{"no packet of a hostile session leaves its Pod, also after its policy or the session with its objects is deleted", testHostileSessionsWithoutOperator},
	})
}

// TestAttacks tests that Pods of a tenant can neither stop nor slow down the operator, for each attack of test/hostile.
func TestAttacks(t *testing.T) {
	env := newAttackEnv(t)
	runOneByOne(t, []scenario{
		{"peers of the operator's ports are refused, within its memory, and slow down nobody", env.testHostilePeers},
		{"hostile brokers, sources and workers are reported, within the operator's memory, and slow down nobody", env.testHostileServers},
		{"the operator connects to no address of its own host or of a metadata service", env.testDeniedAddresses},
	})
}

func TestLifecycle(t *testing.T) {
	runOneByOne(t, []scenario{
		{"a namespace is deleted with its queues, workers and sequences, even if the operator's permissions are deleted first", testNamespaceIsDeleted},
		{"components for the webhook: a NetworkPolicy admits only the API server, and an admission policy records the creator of sessions", testComponents},
	})
}

func TestDeployments(t *testing.T) {
	skipUnlessSoaking(t)
	runOneByOne(t, []scenario{{"each controller works alone, with only its own permissions", testSingleControllers}})
}

// isSoaking reports whether make soak runs the tests: it has more time than CI, and an otherwise idle machine.
func isSoaking() bool { return os.Getenv("E2E_SOAK") != "" }

func skipUnlessSoaking(t *testing.T) {
	t.Helper()
	if !isSoaking() {
		t.Skip("this test takes longer than CI has: use make soak")
	}
}

// besideOthers waits until the tests that need the operator exclusively have ended, and makes the operator watch the namespaces of the others.
func besideOthers(t *testing.T) {
	t.Helper()
	t.Parallel()
	require.NoError(t, watchNamespaces())
}

func runInParallel(t *testing.T, scenarios []scenario) {
	for _, c := range scenarios {
		t.Run(c.title, func(t *testing.T) {
			t.Parallel()
			c.run(t)
		})
	}
}

// runOneByOne runs scenarios that need the operator exclusively.
func runOneByOne(t *testing.T, scenarios []scenario) {
	for _, c := range scenarios {
		t.Run(c.title, c.run)
	}
}
