//go:build e2e

package install

import (
	"regexp"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
)

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
		" --set clusterObjects.create=false,flags.cluster-id=test"+few+asTeam)

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
	if !regexp.MustCompile(`FAILED .*Binding yardmaster-runs does not exist\n *fix: make install\n`).MatchString(findings) {
		t.Errorf("doctor does not say how to restore a policy that all releases share:\n%s", findings)
	}
	run(t, "make install")

	// Two operators do not serve the same namespace.
	refused := run(t, "! helm install yardmaster charts/yardmaster --namespace platform-d --create-namespace --set 'namespaces={served-by-b}'"+few+" 2>&1")
	if !strings.Contains(refused, `Role "yardmaster-`) || !strings.Contains(refused, "cannot be imported into the current release") {
		t.Errorf("a second release for the same namespace is not refused for its Roles:\n%s", refused)
	}

	refused = run(t, "! make deploy IMG="+image+" OPERATOR_NAMESPACE=platform-d NAMESPACES=served-by-b 2>&1")
	require.Contains(t, refused, "the operator in namespace platform-b serves namespace served-by-b")

	before := startSequence(t, "served-by-c")
	helm(t, "uninstall yardmaster --namespace platform-a")
	wantSequence(t, "served-by-b")
	release(t, before)
	// No release deletes the policies, which protect the sessions of all.
	run(t, "kubectl get validatingadmissionpolicybindings yardmaster-session-users")

	wantNamespacesDeleted(t)
	helm(t, "uninstall yardmaster --namespace platform-b")
	run(t, "make uninstall")
	run(t, "kubectl delete namespace nats platform-a platform-b served-by-a served-by-b platform-d --ignore-not-found")
	wantNothingLeft(t)
}

// bindTeam gives the user team the permissions that docs/helm.md names.
func bindTeam(t *testing.T, namespaces ...string) {
	t.Helper()
	for _, ns := range namespaces {
		for _, role := range []string{"admin", "yardmaster-installer"} {
			binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: role}}
			binding.RoleRef = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}
			binding.Subjects = []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "team"}}
			require.NoError(t, cluster.Create(t.Context(), binding))
		}
	}
	for _, ns := range namespaces {
		run(t, "until kubectl auth can-i create roles -n "+ns+" --as team >/dev/null; do sleep 0.5; done")
	}
}

// wantWorkWithRolesOnly checks what docs/helm.md promises for an operator without ClusterRoles.
func wantWorkWithRolesOnly(t *testing.T, ns string) {
	t.Helper()
	completeSequence(t, ns)
	createQueueAndSchedule(t, ns)
	const objects = `
apiVersion: yardmaster.dev/v1alpha1
kind: Policy
metadata: {name: limits}
spec: {limits: {maxReplicasTotal: 1}}
---
apiVersion: yardmaster.dev/v1alpha1
kind: WorkerPool
metadata: {name: workers}
spec:
  queues: [{name: jobs}]
  replicas: 2
  drain: {mode: Signal}
  template:
    spec:
      containers: [{name: worker, image: "busybox:1.37", command: [sh, -c, "trap 'exit 0' TERM; sleep 86400 & wait"], securityContext: {runAsUser: 1000}}]
`
	run(t, "kubectl -n "+ns+" apply -f - <<'YAML'"+objects+"YAML")
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

// wantNamespacesDeleted deletes the namespaces of the operator with Roles only, as docs/operations.md says.
func wantNamespacesDeleted(t *testing.T) {
	t.Helper()
	running := startSequence(t, "served-by-c")
	run(t, "kubectl delete namespace platform-c")
	require.NoError(t, cluster.Delete(t.Context(), running))
	require.True(t, exists(t, running, running.Namespace, running.Name), "a sequence with an active step was deleted without its operator")
	run(t, "kubectl -n served-by-c patch sequentialjob "+running.Name+` --type=merge -p '{"metadata":{"finalizers":null}}'`)
	run(t, "kubectl delete namespace served-by-c --timeout=5m")
}
