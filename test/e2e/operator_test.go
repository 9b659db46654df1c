//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
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

// waitForOperator waits until only Pods of the deployed version exist, one of them leads, and the
// API server can call the webhook.
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

// sendSignal sends a signal to the process of this name in a Pod's first container. A privileged Pod
// sends it, because the operator's image has no shell, and a process cannot kill the first process
// of its own container.
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
		Step("two", shellScript("echo at once")).
		Step("three", shellScript("echo failing; exit 3")).Obj())
	// The command starts before the first Pod exists.
	output, code := runPluginBinary(t, "seq", "logs", "-f", "-n", watchedNamespace, s.sj.Name)
	want := "one | line 1\none | line 2\none | line 3\ntwo | at once\nthree | failing\n"
	require.Equal(t, want, output)
	require.Equal(t, 0, code)
	again, _ := runPluginBinary(t, "seq", "logs", "-n", watchedNamespace, s.sj.Name, "--step", "two")
	require.Equal(t, "two | at once\n", again)
}
