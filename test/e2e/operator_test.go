//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/operator/ca"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// Names of the operator's own objects.
const (
	operatorNamespace = "yardmaster-system"
	operatorName      = "yardmaster"
	leaseName         = "yardmaster.yardmaster.dev"
	serviceAccount    = "system:serviceaccount:" + operatorNamespace + ":" + operatorName
)

var operatorKey = client.ObjectKey{Namespace: operatorNamespace, Name: operatorName}

// waitForOperator waits until only Pods of the deployed version exist, one of them leads, and the API server can call the webhook.
func waitForOperator(ctx context.Context) error {
	err := poll.UntilNil(ctx, func() error { return operatorReady(ctx) })
	if err != nil {
		return fmt.Errorf("waiting for the operator to be ready: %w", err)
	}
	return nil
}

func operatorReady(ctx context.Context) error {
	deployment := &appsv1.Deployment{}
	if err := cluster.Get(ctx, operatorKey, deployment); err != nil {
		return err
	}
	status, wanted := deployment.Status, *deployment.Spec.Replicas
	if status.ObservedGeneration != deployment.Generation || status.UpdatedReplicas != wanted || status.AvailableReplicas != wanted {
		return fmt.Errorf("not rolled out: %d updated, %d available of %d", status.UpdatedReplicas, status.AvailableReplicas, wanted)
	}
	pods, err := operatorPods(ctx)
	if err != nil {
		return err
	}
	if len(pods) != int(wanted) {
		return fmt.Errorf("%d Pods, not %d", len(pods), wanted)
	}
	lease, err := readLease(ctx)
	if err != nil {
		return err
	}
	if leaderAmong(pods, lease) == nil {
		return fmt.Errorf("the Lease is held by %q, but no Pod has that name", leaseHolder(lease))
	}
	return webhookServes(ctx)
}

func operatorPods(ctx context.Context) ([]corev1.Pod, error) {
	var pods corev1.PodList
	err := cluster.List(ctx, &pods, client.InNamespace(operatorNamespace),
		client.MatchingLabels{"app.kubernetes.io/name": operatorName, "app.kubernetes.io/component": "operator"})
	return pods.Items, err
}

func readLease(ctx context.Context) (*coordinationv1.Lease, error) {
	lease := &coordinationv1.Lease{}
	return lease, cluster.Get(ctx, client.ObjectKey{Namespace: operatorNamespace, Name: leaseName}, lease)
}

// leaseHolder returns the identity of the Lease's holder: a Pod's name and an ID of its process.
func leaseHolder(lease *coordinationv1.Lease) string {
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

func leaderAmong(pods []corev1.Pod, lease *coordinationv1.Lease) *corev1.Pod {
	for i := range pods {
		if strings.HasPrefix(leaseHolder(lease), pods[i].Name+"_") {
			return &pods[i]
		}
	}
	return nil
}

// webhookServes creates a Policy in a dry run, which the API server refuses if it cannot call the webhook.
func webhookServes(ctx context.Context) error {
	return cluster.Create(ctx, &v1alpha1.Policy{ObjectMeta: metav1.ObjectMeta{Namespace: watchedNamespace, Name: "dry-run"}}, client.DryRunAll)
}

func currentLease(t *testing.T) *coordinationv1.Lease {
	t.Helper()
	l, err := readLease(t.Context())
	require.NoError(t, err)
	return l
}

// leaderPod returns the operator's Pod that holds the Lease.
func leaderPod(t *testing.T) *corev1.Pod {
	t.Helper()
	pods, err := operatorPods(t.Context())
	require.NoError(t, err)
	pod := leaderAmong(pods, currentLease(t))
	if pod == nil {
		t.Fatalf("the Lease is held by %q, but no Pod has that name", leaseHolder(currentLease(t)))
	}
	return pod
}

// waitForAnotherLeader waits until the Lease has another holder.
func waitForAnotherLeader(t *testing.T, than string) {
	t.Helper()
	poll.Until(t, "another leader", func() bool {
		now := leaseHolder(currentLease(t))
		return now != "" && now != than
	})
}

func operatorDeployment(t *testing.T) *appsv1.Deployment {
	t.Helper()
	deployment := &appsv1.Deployment{}
	require.NoError(t, cluster.Get(t.Context(), operatorKey, deployment))
	return deployment
}

// sendSignal sends a signal to the process of this name in a Pod's first container. A privileged Pod sends it, because the operator's image has no
// shell, and a process cannot kill the first process of its own container.
func sendSignal(t *testing.T, pod *corev1.Pod, process, sig string) {
	t.Helper()
	_, container, _ := strings.Cut(pod.Status.ContainerStatuses[0].ContainerID, "://")
	require.True(t, container != "", "the container of Pod %s does not run", pod.Name)
	command := fmt.Sprintf(`
for i in $(seq 50); do
	for p in /proc/[0-9]*; do
		grep -qs %s $p/cgroup && [ "$(cat $p/comm)" = %s ] && kill -%s ${p#/proc/} && exit 0
	done
	sleep 0.1 # a running container may not have started the process yet
done
exit 1`, container, process, sig)
	sender := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "signal-", Namespace: privilegedNamespace}}
	sender.Spec = corev1.PodSpec{
		HostPID:       true,
		RestartPolicy: corev1.RestartPolicyNever,
		Containers:    []corev1.Container{{Name: "signal", Image: busyboxImage, Command: []string{"sh", "-c", command}}},
	}
	require.NoError(t, cluster.Create(t.Context(), sender))
	defer func() { require.NoError(t, cluster.Delete(t.Context(), sender)) }()
	poll.Until(t, "the signal to be sent", func() bool {
		return objectExists(t, sender) && (sender.Status.Phase == corev1.PodSucceeded || sender.Status.Phase == corev1.PodFailed)
	})
	require.True(t, sender.Status.Phase == corev1.PodSucceeded, "Pod %[2]s has no process %[1]s", process, pod.Name)
}

func newShortSequence(name string, n int) *v1alpha1.SequentialJob {
	b := testbuilder.SequentialJob(name, "")
	for i := n; i > 0; i-- {
		b = b.Step(fmt.Sprintf("t-%d", i), shellScript("sleep 0.2"))
	}
	return b.Obj()
}

// roundedSince returns the elapsed time, rounded for messages.
func roundedSince(start time.Time) time.Duration {
	return time.Since(start).Round(100 * time.Millisecond)
}

// buildPlugin makes all tests share one build of the plugin.
var buildPlugin sync.Once

func newPluginCommand(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	buildPlugin.Do(func() { require.NoError(t, runInRepository(t.Context(), "make", "plugin")) })
	command := exec.CommandContext(t.Context(), filepath.Join(repositoryRoot, "bin", "kubectl-yardmaster"), args...)
	command.Env = append(os.Environ(), "KUBECONFIG="+os.Getenv("KUBECONFIG"))
	return command
}

// runPluginBinary runs the kubectl plugin and returns its standard output and exit code.
func runPluginBinary(t *testing.T, args ...string) (output string, code int) {
	t.Helper()
	var stderr bytes.Buffer
	command := newPluginCommand(t, args...)
	command.Stderr = &stderr
	out, err := command.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		code = exit.ExitCode()
	} else {
		require.NoError(t, err)
	}
	if stderr.Len() > 0 {
		t.Logf("%s: %s", command, stderr.String())
	}
	return string(out), code
}

func testPluginFollowsLogs(t *testing.T) {
	s := createSequence(t, testbuilder.SequentialJob("followed", "").
		Step("one", shellScript("for i in 1 2 3; do echo line $i; sleep 1; done")).
		Step("two", shellScript("echo at once")).Step("three", shellScript("echo failing; exit 3")).Obj())
	// The command starts before the first Pod exists.
	output, code := runPluginBinary(t, "seq", "logs", "-f", "-n", watchedNamespace, s.sj.Name)
	want := "one | line 1\none | line 2\none | line 3\ntwo | at once\nthree | failing\n"
	require.Equal(t, want, output)
	require.Equal(t, 0, code)
	again, _ := runPluginBinary(t, "seq", "logs", "-n", watchedNamespace, s.sj.Name, "--step", "two")
	require.Equal(t, "two | at once\n", again)
}

func testCertificateAuthorityIsRenewed(t *testing.T) {
	before := leaderPod(t)
	calls := callWebhook(t)
	replaced := authoritySecret(t).Data[ca.CertFile]
	mustRunPlugin(t, "webhook-ca", "--renew")
	renewed := authoritySecret(t).Data[ca.CertFile]
	pods, err := operatorPods(t.Context())
	require.NoError(t, err)
	for i := range pods {
		// A kubelet updates the Secrets of a Pod every minute, and whenever the Pod changes.
		require.NoError(t, cluster.Patch(t.Context(), pods[i].DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"e2e":"renewed"}}}`))))
	}
	start := time.Now()
	for i := range pods {
		poll.Until(t, "a certificate of the new authority to be served", func() bool { return servesCertificateOf(t, "pod/"+pods[i].Name, "9443", renewed) })
	}
	t.Logf("all replicas served a certificate of the new authority after %v", roundedSince(start))
	mustRunPlugin(t, "webhook-ca")
	trusted := readTrustedCA(t)
	require.True(t, !bytes.Equal(renewed, replaced) && bytes.Equal(trusted, renewed), "the API server does not trust only the new authority")
	require.NoError(t, webhookServes(t.Context()))
	for _, err := range calls.stopCalling() {
		t.Errorf("a request failed: %v", err)
	}
	after := leaderPod(t)
	if after.UID != before.UID || after.Status.ContainerStatuses[0].RestartCount != before.Status.ContainerStatuses[0].RestartCount {
		t.Error("the operator was restarted")
	}
}

// authoritySecret reads the Secret of the webhooks' certificate authority.
func authoritySecret(t *testing.T) *corev1.Secret {
	t.Helper()
	secret := &corev1.Secret{}
	require.NoError(t, cluster.Get(t.Context(), client.ObjectKey{Namespace: operatorNamespace, Name: "yardmaster-webhook-ca"}, secret))
	return secret
}

// readTrustedCA returns the CA that the API server trusts when it calls the webhook.
func readTrustedCA(t *testing.T) []byte {
	t.Helper()
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	require.NoError(t, cluster.Get(t.Context(), client.ObjectKey{Name: operatorName}, configuration))
	return configuration.Webhooks[0].ClientConfig.CABundle
}

func mustRunPlugin(t *testing.T, args ...string) {
	t.Helper()
	output, code := runPluginBinary(t, args...)
	require.True(t, code == 0, "kubectl yardmaster %v: exit code %d: %s", args, code, output)
}

// servesCertificateOf reports whether the certificate of the webhooks at a port is signed by this CA.
func servesCertificateOf(t *testing.T, target, port string, authority []byte) bool {
	t.Helper()
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(authority), "the CA is not a certificate")
	address, stop := forwardPort(t, target, port)
	defer stop()
	dialer := tls.Dialer{Config: &tls.Config{RootCAs: roots, ServerName: "yardmaster-webhook." + operatorNamespace + ".svc"}}
	connection, err := dialer.DialContext(t.Context(), "tcp", address)
	if err != nil {
		return false
	}
	_ = connection.Close()
	return true
}

func testRollingRestart(t *testing.T) {
	s := createSequence(t, newShortSequence("restarted", 8))
	calls := callWebhook(t)
	before := currentLease(t)

	restarted := operatorDeployment(t)
	original := restarted.DeepCopy()
	restarted.Spec.Template.Annotations["kubectl.kubernetes.io/restartedAt"] = time.Now().Format(time.RFC3339)
	require.NoError(t, cluster.Patch(t.Context(), restarted, client.MergeFrom(original)))
	require.NoError(t, waitForOperator(t.Context()))
	after := currentLease(t)
	require.True(t, leaseHolder(after) != leaseHolder(before), "the leader did not change")
	for _, err := range calls.stopCalling() {
		t.Errorf("a request failed: %v", err)
	}
	calls.recordLease(after)
	// A leader stops up to 2 s after its last renewal, and another replica tries to acquire the Lease up to 2.2 times 2 s later. A Lease that is not
	// released expires after 15 s. The next leader may be a replica that is restarted later.
	leaderless := calls.longestLeaderless()
	limit := 10 * time.Second
	require.True(t, leaderless <= limit, "no replica led for %v, want at most %v", leaderless, limit)
	t.Logf("%d replicas led, the next at most %v after the last renewal by the previous one", len(calls.terms), leaderless.Round(100*time.Millisecond))

	s.waitForPhase(v1alpha1.PhaseCompleted)
	s.wantEachStepOnce()
}

// webhookCaller calls the webhook repeatedly, and records the renewals of the Lease.
type webhookCaller struct {
	stop  context.CancelFunc
	done  chan struct{}
	errs  []error
	terms []leaseTerm
}

// leaseTerm is the time in which one replica held the Lease.
type leaseTerm struct {
	holder                string
	acquired, lastRenewal time.Time
}

func callWebhook(t *testing.T) *webhookCaller {
	ctx, stop := context.WithCancel(t.Context())
	c := &webhookCaller{stop: stop, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		for ctx.Err() == nil {
			c.callOnce(ctx)
		}
	}()
	t.Cleanup(func() { c.stopCalling() })
	return c
}

func (c *webhookCaller) callOnce(ctx context.Context) {
	if err := webhookServes(ctx); err != nil && ctx.Err() == nil {
		c.errs = append(c.errs, fmt.Errorf("%s: %w", time.Now().Format(time.TimeOnly), err))
	}
	if lease, err := readLease(ctx); err == nil {
		c.recordLease(lease)
	}
	select {
	case <-ctx.Done():
	case <-time.After(50 * time.Millisecond):
	}
}

func (c *webhookCaller) recordLease(lease *coordinationv1.Lease) {
	holder := leaseHolder(lease)
	if holder == "" {
		return
	}
	if n := len(c.terms); n == 0 || c.terms[n-1].holder != holder {
		c.terms = append(c.terms, leaseTerm{holder: holder, acquired: lease.Spec.AcquireTime.Time})
	}
	c.terms[len(c.terms)-1].lastRenewal = lease.Spec.RenewTime.Time
}

// longestLeaderless returns the longest time between two recorded leaders. The calls must have been stopped.
func (c *webhookCaller) longestLeaderless() (longest time.Duration) {
	for i := 1; i < len(c.terms); i++ {
		longest = max(longest, c.terms[i].acquired.Sub(c.terms[i-1].lastRenewal))
	}
	return longest
}

// stopCalling ends the calls and returns those that failed.
func (c *webhookCaller) stopCalling() []error {
	c.stop()
	<-c.done
	return c.errs
}

func testFailover(t *testing.T) {
	var sequences []*sequenceTest
	for range 4 {
		sequences = append(sequences, createSequence(t, newShortSequence("fail-over", 10)))
	}
	sequences[0].waitForRunningPod("t-9")

	hung := leaderPod(t)
	restarts := hung.Status.ContainerStatuses[0].RestartCount
	before := leaseHolder(currentLease(t))
	start := time.Now()
	sendSignal(t, hung, operatorName, "STOP")
	waitForAnotherLeader(t, before)
	t.Logf("another replica led %v after the leader hung", roundedSince(start))
	require.True(t, leaderPod(t).UID != hung.UID, "the hung Pod leads again")
	// The resumed process assumes that it still leads, and exits when it detects that it does not.
	sendSignal(t, hung, operatorName, "CONT")
	poll.Until(t, "the old leader to restart", func() bool {
		return objectExists(t, hung) && hung.Status.ContainerStatuses[0].RestartCount > restarts
	})

	// The kubelet restarts a killed process at once, so it can become the leader again.
	before = leaseHolder(currentLease(t))
	start = time.Now()
	sendSignal(t, leaderPod(t), operatorName, "KILL")
	waitForAnotherLeader(t, before)
	t.Logf("another replica led %v after the leader was killed", roundedSince(start))
	require.True(t, !allFinished(sequences), "the sequences ended before the failover: this test needs longer ones")
	for _, s := range sequences {
		s.waitForPhase(v1alpha1.PhaseCompleted)
		s.wantEachStepOnce()
	}
}

func allFinished(sequences []*sequenceTest) bool {
	for _, s := range sequences {
		if s.readSequence().Status.CompletionTime == nil {
			return false
		}
	}
	return true
}

// scaleOperatorToZero stops the operator for the rest of the test.
func scaleOperatorToZero(t *testing.T) {
	t.Helper()
	before := operatorDeployment(t)
	none := before.DeepCopy()
	none.Spec.Replicas = new(int32(0))
	require.NoError(t, cluster.Patch(t.Context(), none, client.MergeFrom(before)))
	t.Cleanup(func() {
		ctx := context.Background()
		replicas := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, *before.Spec.Replicas)
		require.NoError(t, cluster.Patch(ctx, before, client.RawPatch(types.MergePatchType, replicas)))
		require.NoError(t, waitForOperator(ctx))
	})
	poll.Until(t, "the operator's Pods to be deleted", func() bool {
		pods, err := operatorPods(t.Context())
		require.NoError(t, err)
		return len(pods) == 0
	})
}

// The objects of a namespace are deleted in no defined order. This test enforces the worst one:
// the operator's permissions are deleted before all objects with its finalizers.
func testNamespaceIsDeleted(t *testing.T) {
	o := newQueueEnv(t, terminatingNamespace)
	o.createQueue("purged", func(q *v1alpha1.Queue) { q.Spec.DeletionPolicy = v1alpha1.DeletionPurge })
	o.createPool(func(pool *v1alpha1.WorkerPool) { setFixedReplicas(pool, 2, 2) })
	o.waitUntilWorkers(2)
	o.sendBatch(jobBatch{queue: "orders", run: "job", jobs: 100, rate: 100, takes: time.Second})
	o.waitUntilInFlight(4)
	s := createSequenceIn(t, terminatingNamespace, testbuilder.SequentialJob("running", "").Step("a", shellScript("trap exit TERM; sleep 3600 & wait")).Obj())
	s.waitForRunningPod("a")

	o.runKubectl("delete", "rolebindings", "--selector", "yardmaster.dev/deployment")
	poll.Until(t, "the operator to have lost its permissions", func() bool {
		return !slices.Contains(operatorPermissions(t, terminatingNamespace), "patch pods")
	})
	o.runKubectl("delete", "workerpools,queues", "--all", "--wait=false")
	s.deleteSequence()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: terminatingNamespace}}
	for _, object := range []client.Object{s.sj, o.getPool()} {
		require.True(t, objectExists(t, object) && len(object.GetFinalizers()) != 0,
			"%s lost its finalizer although its namespace is not terminating", object.GetName())
	}
	start := time.Now()
	require.NoError(t, cluster.Delete(t.Context(), ns))
	waitUntilDeleted(t, ns)
	t.Logf("the namespace was deleted after %v", roundedSince(start))

	// Later tests need the operator, which needs all watched namespaces when it restarts.
	require.NoError(t, createNamespace(t.Context(), terminatingNamespace))
	require.NoError(t, deployOperator(t.Context(), exclusiveNamespaces))
	require.NoError(t, waitForOperator(t.Context()))
}
