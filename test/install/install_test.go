//go:build e2e

// Package install tests the ways to install the operator that README.md and docs/helm.md describe, on an empty cluster
// with a real node. `make soak SOAK_PARTS=install` starts such a cluster.
package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
	"github.com/yardmaster/yardmaster/test/testenv"
)

const (
	repositoryRoot = "../.."
	image          = "registry.example/yardmaster:v1" // the one that the README builds
)

var cluster *testenv.Cluster

func TestMain(m *testing.M) {
	testenv.Main(m, "make soak SOAK_PARTS=install", func(_ context.Context, c *testenv.Cluster) (func() error, error) {
		cluster = c
		return testenv.NothingToEnd, nil
	})
}

// run runs a script from the root of the repository, as a user would who has kubectl, Helm and Docker, and returns what it printed.
func run(t *testing.T, script string) string {
	t.Helper()
	programs, err := filepath.Abs("programs")
	require.NoError(t, err)
	// A user stops at the first command that fails.
	command := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", script)
	command.Dir = repositoryRoot
	command.Env = append(os.Environ(), "PATH="+programs+":"+os.Getenv("PATH"), "MAKEFLAGS=", "MAKELEVEL=")
	output, err := command.CombinedOutput()
	require.True(t, err == nil, "%s: %v\n%s", script, err, output)
	return string(output)
}

// shellBlocks returns the shell commands below a heading of a page, block by block.
func shellBlocks(t *testing.T, page, heading string) []string {
	content, err := os.ReadFile(filepath.Join(repositoryRoot, page))
	require.NoError(t, err)
	_, section, found := strings.Cut(string(content), "\n## "+heading+"\n")
	require.True(t, found, "%s has no section %s", page, heading)
	section, _, _ = strings.Cut(section, "\n## ")
	var blocks []string
	for {
		_, after, found := strings.Cut(section, "\n```sh\n")
		if !found {
			return blocks
		}
		block, rest, _ := strings.Cut(after, "\n```\n")
		blocks, section = append(blocks, block), rest
	}
}

func exists(t *testing.T, object client.Object, ns, name string) bool {
	t.Helper()
	err := cluster.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: name}, object)
	require.NoError(t, client.IgnoreNotFound(err))
	return err == nil
}

// wantSequence checks that the operator runs sequences in the namespace, and that its webhook refuses wrong ones there.
func wantSequence(t *testing.T, ns string) {
	t.Helper()
	// The API server learns a moment after the webhook's configuration how to reach it.
	poll.Until(t, "the webhook in "+ns, func() bool { return webhookServes(t, ns) })
	completeSequence(t, ns)
}

func completeSequence(t *testing.T, ns string) {
	t.Helper()
	sj := testbuilder.SequentialJob("hello", "").Step("hello").Step("goodbye").Obj()
	sj.Namespace, sj.Name, sj.GenerateName = ns, "", "hello-"
	for i := range sj.Spec.Containers {
		sj.Spec.Containers[i].Image, sj.Spec.Containers[i].Command = "busybox:1.37", []string{"true"}
	}
	require.NoError(t, cluster.Create(t.Context(), sj))
	waitUntilCompleted(t, sj)
}

func waitUntilCompleted(t *testing.T, sj *v1alpha1.SequentialJob) {
	t.Helper()
	poll.Until(t, sj.Name+" in "+sj.Namespace+" to complete", func() bool {
		require.NoError(t, cluster.Get(t.Context(), client.ObjectKeyFromObject(sj), sj))
		require.True(t, !meta.IsStatusConditionTrue(sj.Status.Conditions, v1alpha1.ConditionFailed), "it failed: %+v", sj.Status)
		return sj.Status.Phase == v1alpha1.PhaseCompleted
	})
}

// webhookServes returns whether the webhook refuses a sequence that only it can refuse, because CEL can't express why.
func webhookServes(t *testing.T, ns string) bool {
	t.Helper()
	sj := testbuilder.SequentialJob("wrong", "").Step("a", testbuilder.StepImage("")).Obj()
	sj.Namespace = ns
	err := cluster.Create(t.Context(), sj, client.DryRunAll)
	var status interface{ Status() metav1.Status }
	return errors.As(err, &status) && status.Status().Reason == metav1.StatusReasonInvalid
}

const workManifest = `
apiVersion: yardmaster.dev/v1alpha1
kind: Schedule
metadata: {name: each-minute}
spec:
  schedule: "* * * * *"
  sequentialJob:
    spec: {containers: [{name: only, image: "busybox:1.37", command: ["true"]}]}
---
apiVersion: yardmaster.dev/v1alpha1
kind: WorkerPool
metadata: {name: workers}
spec:
  queues: [{name: jobs}]
  replicas: %d
  drain: {mode: Signal}
  template:
    spec:
      containers: [{name: worker, image: "busybox:1.37", command: [sh, -c, "trap 'exit 0' TERM; sleep 86400 & wait"], securityContext: {runAsUser: 1000}}]
`

func createWork(t *testing.T, ns string, replicas int) {
	t.Helper()
	run(t, "kubectl -n "+ns+" create secret generic broker --from-literal=url=nats://nats.nats:4222 && kubectl -n "+ns+" label secret broker yardmaster.dev/broker=true")
	createQueue(t, ns)
	apply(t, ns, fmt.Sprintf(workManifest, replicas))
}

func createQueue(t *testing.T, ns string) {
	t.Helper()
	apply(t, ns, `
apiVersion: yardmaster.dev/v1alpha1
kind: Queue
metadata: {name: jobs}
spec: {broker: {engine: NATS, urlSecretRef: {name: broker}}}
`)
}

func apply(t *testing.T, ns, manifest string) {
	t.Helper()
	run(t, "kubectl -n "+ns+" apply -f - <<'YAML'\n"+manifest+"\nYAML")
}

const helmValues = " --set image.repository=registry.example/yardmaster,image.tag=v1"

// The steps depend on each other, as those of a user do. In each of them, a sequence runs during what Helm does, and is not interrupted.
func TestReleaseOfTheChartWithARunningOperator(t *testing.T) {
	createNamespaces(t, "platform", "team-x", "team-y", "team-z")

	helm(t, "install yardmaster charts/yardmaster --namespace platform --set 'namespaces={team-x}'"+helmValues)
	wantWatched(t, "platform", "team-x")

	during := startSequence(t, "team-x")
	helm(t, "upgrade yardmaster charts/yardmaster --namespace platform --set 'namespaces={team-x,team-y}' --set replicas=1"+helmValues)
	wantWatched(t, "platform", "team-x", "team-y")
	release(t, during)

	during = startSequence(t, "team-y")
	helm(t, "rollback yardmaster 1 --namespace platform")
	wantWatched(t, "platform", "team-x")

	helm(t, "upgrade yardmaster charts/yardmaster --namespace platform --set 'namespaces={*}'"+helmValues)
	wantWatched(t, "platform", "team-x", "team-y", "team-z")
	release(t, during) // nobody watched its namespace for some time

	during = startSequence(t, "team-z")
	helm(t, "uninstall yardmaster --namespace platform")
	require.True(t, !exists(t, &appsv1.Deployment{}, "platform", "yardmaster"), "the Deployment remains")
	// Another namespace, and the CustomResourceDefinitions and objects of the first release.
	helm(t, "install yardmaster charts/yardmaster --namespace yardmaster-system --create-namespace --take-ownership --set 'namespaces={team-z}'"+helmValues)
	wantWatched(t, "yardmaster-system", "team-z")
	release(t, during)
	uninstall(t, "yardmaster-system")
}

func helm(t *testing.T, command string) {
	t.Helper()
	if !strings.HasPrefix(command, "uninstall") {
		command += " --wait --timeout 10m"
	}
	run(t, "helm "+command)
}

func uninstall(t *testing.T, ns string) {
	t.Helper()
	run(t, "make uninstall")
	helm(t, "uninstall yardmaster --namespace "+ns)
	run(t, "kubectl delete namespace "+ns)
	wantNothingLeft(t)
}

// wantWatched checks that sequences run in these namespaces, and that the operator has permissions in no others.
func wantWatched(t *testing.T, release string, watched ...string) {
	t.Helper()
	deployment := &appsv1.Deployment{}
	require.NoError(t, cluster.Get(t.Context(), client.ObjectKey{Namespace: release, Name: "yardmaster"}, deployment))
	require.Equal(t, image, deployment.Spec.Template.Spec.Containers[0].Image)
	everywhere := exists(t, &rbacv1.ClusterRoleBinding{}, "", "yardmaster-sequentialjob-"+release)
	for _, ns := range []string{"team-x", "team-y", "team-z"} {
		role := exists(t, &rbacv1.Role{}, ns, "yardmaster-sequentialjob")
		require.True(t, everywhere || role == slices.Contains(watched, ns), "the operator has a Role in %s: %t", ns, role)
	}
	for _, ns := range watched {
		wantSequence(t, ns)
	}
}

// startSequence starts a sequence whose first step runs until it is released.
func startSequence(t *testing.T, ns string) *v1alpha1.SequentialJob {
	t.Helper()
	sj := testbuilder.SequentialJob("", "").Step("long").Step("next").Obj()
	sj.Namespace, sj.GenerateName = ns, "during-"
	sj.Spec.Containers[0].Image, sj.Spec.Containers[0].Command = "busybox:1.37", []string{"sh", "-c", "until [ -f /tmp/released ]; do sleep 0.2; done"}
	sj.Spec.Containers[1].Image, sj.Spec.Containers[1].Command = "busybox:1.37", []string{"true"}
	require.NoError(t, cluster.Create(t.Context(), sj))
	poll.Until(t, "the step of "+sj.Name+" to run", func() bool { return len(podsOf(t, sj, corev1.PodRunning)) == 1 })
	return sj
}

func release(t *testing.T, sj *v1alpha1.SequentialJob) {
	t.Helper()
	pods := podsOf(t, sj, corev1.PodRunning)
	require.True(t, len(pods) == 1 && pods[0].Status.ContainerStatuses[0].RestartCount == 0, "the running step was interrupted: %d Pods run", len(pods))
	run(t, "kubectl -n "+sj.Namespace+" exec "+pods[0].Name+" -- touch /tmp/released")
	waitUntilCompleted(t, sj)
	all := podsOf(t, sj, corev1.PodSucceeded)
	require.True(t, len(all) == 2, "the two steps had %d Pods", len(all))
}

func podsOf(t *testing.T, sj *v1alpha1.SequentialJob, phase corev1.PodPhase) []corev1.Pod {
	t.Helper()
	pods := &corev1.PodList{}
	require.NoError(t, cluster.List(t.Context(), pods, client.InNamespace(sj.Namespace), client.MatchingLabels{v1alpha1.LabelSequentialJob: sj.Name}))
	return slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool { return pod.Status.Phase != phase })
}

func createNamespaces(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		require.NoError(t, cluster.Create(t.Context(), ns))
		t.Cleanup(func() {
			ctx := context.WithoutCancel(t.Context())
			testenv.SaveObjectsOfFailedTest(ctx, t, cluster, name)
			if os.Getenv("KEEP") == "" {
				_ = cluster.Delete(ctx, ns)
			}
		})
	}
}

// An administrator has installed what all releases share, and two of them. The third is of a team that has Roles in two namespaces and
// no other permission.
func TestReleasesOfTheChartSideBySide(t *testing.T) {
	createNamespaces(t, "nats", "platform-a", "platform-b", "platform-c", "served-by-a", "served-by-b", "served-by-c")
	run(t, "make install")
	run(t, "kubectl apply -k config/nats && kubectl -n nats rollout status statefulset/nats --timeout=10m")
	const few = " --set crds.install=false,replicas=1" + helmValues
	helm(t, "install yardmaster charts/yardmaster --namespace platform-a --set 'namespaces={served-by-a}'"+few)
	helm(t, "install yardmaster charts/yardmaster --namespace platform-b --set 'namespaces={served-by-b}'"+few)
	asTeam := " --kube-as-user team --kube-as-group system:authenticated"
	bindTeam(t, "platform-c", "served-by-c")
	helm(t, "install yardmaster charts/yardmaster --namespace platform-c --set 'namespaces={served-by-c},report.namespaces={served-by-c}'"+
		" --set clusterObjects.create=false,report.openReports=true,flags.cluster-id=test"+few+asTeam)

	wantSequence(t, "served-by-a")
	wantSequence(t, "served-by-b")
	wantWorkWithRolesOnly(t, "served-by-c")

	run(t, "make plugin")
	for _, ns := range []string{"platform-a", "platform-b", "platform-c"} {
		run(t, "bin/kubectl-yardmaster doctor --kubeconfig $KUBECONFIG --namespace "+ns+"")
	}

	// What is wrong is repaired where it was installed.
	run(t, "kubectl delete validatingadmissionpolicybinding yardmaster-runs")
	findings := run(t, "! bin/kubectl-yardmaster doctor --kubeconfig $KUBECONFIG --namespace platform-b")
	require.True(t, regexp.MustCompile(`FAILED .*Binding yardmaster-runs does not exist\n *fix: make install\n`).MatchString(findings),
		"doctor does not say how to restore a policy that all releases share:\n%s", findings)
	run(t, "make install")

	// Two operators do not serve the same namespace.
	refused := run(t, "! helm install yardmaster charts/yardmaster --namespace platform-d --create-namespace --set 'namespaces={served-by-b}'"+few+" 2>&1")
	require.True(t, strings.Contains(refused, `Role "yardmaster-`) && strings.Contains(refused, "cannot be imported into the current release"),
		"a second release for the same namespace is not refused for its Roles:\n%s", refused)

	refused = run(t, "! make deploy IMG="+image+" OPERATOR_NAMESPACE=platform-d NAMESPACES=served-by-b 2>&1")
	require.Contains(t, refused, "the operator in namespace platform-b serves namespace served-by-b")

	before := startSequence(t, "served-by-c")
	helm(t, "uninstall yardmaster --namespace platform-a")
	wantSequence(t, "served-by-b")
	release(t, before)
	// No release deletes the policies, which protect the sessions of all.
	run(t, "kubectl get validatingadmissionpolicybindings yardmaster-session-users")

	running := startSequence(t, "served-by-c")
	run(t, "kubectl delete namespace platform-c")
	require.NoError(t, cluster.Delete(t.Context(), running))
	require.True(t, exists(t, running, running.Namespace, running.Name), "a sequence with an active step was deleted without its operator")
	run(t, "kubectl -n served-by-c patch sequentialjob "+running.Name+` --type=merge -p '{"metadata":{"finalizers":null}}'`)
	run(t, "kubectl delete namespace served-by-c --timeout=5m")
	helm(t, "uninstall yardmaster --namespace platform-b")
	run(t, "make uninstall")
	run(t, "kubectl delete namespace nats platform-a platform-b served-by-a served-by-b platform-d --ignore-not-found")
	wantNothingLeft(t)
}

// bindTeam gives the user team the permissions that docs/helm.md names.
func bindTeam(t *testing.T, namespaces ...string) {
	for _, ns := range namespaces {
		for _, role := range []string{"admin", "yardmaster-installer"} {
			binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: role}}
			binding.RoleRef = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}
			binding.Subjects = []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "team"}}
			require.NoError(t, cluster.Create(t.Context(), binding))
		}
		run(t, "until kubectl auth can-i create roles -n "+ns+" --as team >/dev/null; do sleep 0.5; done")
	}
}

// wantWorkWithRolesOnly checks what docs/helm.md promises for an operator without ClusterRoles.
func wantWorkWithRolesOnly(t *testing.T, ns string) {
	completeSequence(t, ns)
	apply(t, ns, `{apiVersion: yardmaster.dev/v1alpha1, kind: Policy, metadata: {name: limits}, spec: {limits: {maxReplicasTotal: 1}}}`)
	createWork(t, ns, 2)
	run(t, "kubectl -n "+ns+" wait queue/jobs --for condition=Ready --timeout 5m")
	run(t, "kubectl -n "+ns+" wait workerpool/workers --for jsonpath={.status.ready}=1 --timeout 5m") // the Policy's limit
	poll.Until(t, "a run of the Schedule to complete", func() bool {
		return strings.Contains(run(t, "kubectl -n "+ns+" get sequentialjobs"), "each-minute-")
	})
	run(t, "kubectl -n "+ns+" delete schedule/each-minute --cascade=orphan")
	run(t, "kubectl -n "+ns+" wait sequentialjobs --all --for condition=Ready --timeout 5m")
	poll.Until(t, "a JobReport", func() bool { return strings.Contains(run(t, "kubectl -n "+ns+" get jobreports -o name"), "jobreport") })
	run(t, "kubectl -n "+ns+" delete workerpool/workers queue/jobs --timeout 5m")
}

// The README's commands run as they are written, on an empty cluster. Only docker is another program, which loads the image into the cluster.
func TestInstallStepsOfTheReadmeNeedNoOtherStep(t *testing.T) {
	blocks := shellBlocks(t, "README.md", "On your own cluster")
	require.Equal(t, 2, len(blocks))
	deploy := regexp.MustCompile(`(?m)^make install deploy .*$`)
	found := deploy.FindAllString(blocks[0], -1)
	require.True(t, len(found) == 1, "the first block has %d commands that the second block can replace", len(found))
	for _, way := range []struct{ name, commands, uninstall string }{
		{"with make", blocks[0], "make uninstall undeploy NAMESPACES=team-a"},
		{"with Helm", deploy.ReplaceAllLiteralString(blocks[0], blocks[1]), "make uninstall; helm uninstall yardmaster --namespace yardmaster-system"},
	} {
		t.Run(way.name, func(t *testing.T) {
			output := run(t, way.commands)
			require.True(t, regexp.MustCompile(`(?m)^minimal +Completed +2 `).MatchString(output), "the sequence did not complete:\n%s", output)
			wantSequence(t, "team-a")
			run(t, way.uninstall)
			run(t, "kubectl delete namespace team-a")
			run(t, "kubectl delete namespace yardmaster-system --ignore-not-found") // Helm keeps it
			wantNothingLeft(t)
		})
	}
}

// wantNothingLeft checks that an uninstallation left nothing, so that the cluster is empty again.
func wantNothingLeft(t *testing.T) {
	t.Helper()
	kinds := "crd,clusterroles,clusterrolebindings,priorityclasses,validatingwebhookconfigurations,mutatingwebhookconfigurations," +
		"validatingadmissionpolicies,validatingadmissionpolicybindings"
	require.Equal(t, "", strings.TrimSpace(run(t, "kubectl get "+kinds+" -o name | grep yardmaster || true")))
	for _, ns := range []string{"team-a", "yardmaster-system"} {
		require.True(t, !exists(t, &corev1.Namespace{}, "", ns), "the namespace %s remains", ns)
	}
}

const baselineImage = "registry.example/yardmaster:baseline"

const upgradedObjects = `
apiVersion: yardmaster.dev/v1alpha1
kind: Policy
metadata: {name: limits}
spec: {limits: {maxReplicasPerPool: 10}}
---
apiVersion: yardmaster.dev/v1alpha1
kind: SessionRunner
metadata: {name: shell}
spec:
  image: busybox:1.37
  network: {isolation: Preferred}
  template:
    spec:
      securityContext: {runAsUser: 1000}
      containers: [{name: runner, command: [sh, -c, "until [ -f /tmp/released ]; do sleep 0.2; done"]}]
---
apiVersion: yardmaster.dev/v1alpha1
kind: AgenticSession
metadata: {name: long}
spec: {runner: shell, prompt: wait}
`

// Work of each kind begins with the release that test/install/baseline names, and continues with this version, and with the earlier
// one after a downgrade. The queue of that release has to be created again.
func TestUpgradeFromTheBaselineAndBackInterruptsNoWork(t *testing.T) {
	raw, err := os.ReadFile("baseline")
	require.NoError(t, err)
	commit := strings.TrimSpace(string(raw))
	earlier, err := filepath.Abs(filepath.Join(t.TempDir(), "baseline"))
	require.NoError(t, err)
	// The tools are those of this version, which differ only in speed.
	run(t, "git worktree add --detach "+earlier+" "+commit+" && cp -a bin "+earlier+"/bin")
	defer run(t, "git worktree remove --force "+earlier)
	run(t, earlier+"/test/install/programs/docker --tag "+baselineImage)
	createNamespaces(t, "nats", "team-a")
	run(t, "kubectl apply -k config/nats && kubectl -n nats rollout status statefulset/nats --timeout=10m")

	installed := " NAMESPACES=team-a && kubectl -n yardmaster-system rollout status deployment/yardmaster --timeout=10m"
	run(t, "make -C "+earlier+" install deploy IMG="+baselineImage+installed)
	wantSequence(t, "team-a")
	first := startSequence(t, "team-a")
	createWork(t, "team-a", 1)
	apply(t, "team-a", upgradedObjects)
	wantAllKindsWork(t)
	wantQueueReady(t)
	before := podsAtWork(t)

	run(t, "make install deploy IMG="+image+installed)
	wantSequence(t, "team-a")
	wantAllKindsWork(t)
	wantQueueRefused(t)
	release(t, first)
	second := startSequence(t, "team-a")

	run(t, "make -C "+earlier+" install deploy IMG="+baselineImage+installed)
	wantSequence(t, "team-a")
	wantAllKindsWork(t)
	wantQueueReady(t)
	release(t, second)
	require.Equal(t, before, podsAtWork(t))
	run(t, "kubectl -n team-a exec "+strings.Fields(run(t, "kubectl -n team-a get pods -l yardmaster.dev/session=long -o name"))[0]+" -- touch /tmp/released")
	run(t, "kubectl -n team-a wait agenticsession/long --for jsonpath='{.status.phase}'=Completed --timeout 5m")

	run(t, "make install deploy IMG="+image+installed) // whose targets delete it
	wantQueueRefused(t)
	run(t, "kubectl -n team-a delete workerpool/workers --timeout 5m && kubectl -n team-a patch queue jobs --type merge -p '{\"spec\":{\"deletionPolicy\":\"Drain\"}}'"+
		" && kubectl -n team-a delete queue/jobs --timeout 5m")
	createQueue(t, "team-a")
	wantQueueReady(t)
	run(t, "kubectl -n team-a delete schedules,agenticsessions,workerpools,queues --all --timeout 5m && make uninstall undeploy NAMESPACES=team-a && kubectl delete namespace team-a nats")
	wantNothingLeft(t)
}

func wantQueueReady(t *testing.T) {
	t.Helper()
	run(t, "kubectl -n team-a wait queue/jobs --for condition=Ready --timeout 5m")
}

// wantQueueRefused waits until the Queue says how to replace its stream, which any producer can erase.
func wantQueueRefused(t *testing.T) {
	t.Helper()
	run(t, "kubectl -n team-a wait queue/jobs --for jsonpath='{.status.conditions[?(@.type==\"ConfigSynced\")].reason}'=RefusedByBroker --timeout 5m")
	message := run(t, "kubectl -n team-a get queue jobs -o jsonpath='{.status.conditions[?(@.type==\"Ready\")].message}'")
	require.Contains(t, message, "set spec.deletionPolicy of the Queue to Drain")
}

// wantAllKindsWork waits until the objects of all kinds but the Queue are ready, and a time of the Schedule has run.
func wantAllKindsWork(t *testing.T) {
	t.Helper()
	run(t, "kubectl -n team-a wait workerpool/workers policy/limits schedule/each-minute sessionrunner/shell agenticsession/long --for condition=Ready --timeout 5m")
	schedule := &v1alpha1.Schedule{}
	schedule.Namespace, schedule.Name = "team-a", "each-minute"
	began := time.Now()
	poll.Until(t, "the next run of the Schedule", func() bool {
		require.NoError(t, cluster.Get(t.Context(), client.ObjectKeyFromObject(schedule), schedule))
		last := schedule.Status.LastScheduleTime
		return last != nil && last.After(began)
	})
}

// podsAtWork returns the UIDs and restarts of the Pods of the pool and of the session.
func podsAtWork(t *testing.T) string {
	t.Helper()
	return run(t, "kubectl -n team-a get pods -l 'yardmaster.dev/workerpool in (workers)' -o jsonpath='{range .items[*]}{.metadata.uid} {.status.containerStatuses[*].restartCount}{\"\\n\"}{end}'"+
		" && kubectl -n team-a get pods -l yardmaster.dev/session=long -o jsonpath='{range .items[*]}{.metadata.uid} {.status.containerStatuses[*].restartCount}{\"\\n\"}{end}'")
}
