package plugin

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// listWatched lists objects of the operator's namespaces.
func listWatched[T client.Object](ctx context.Context, d *doctor, emptyList client.ObjectList) (all []T, err error) {
	if d.deployment == nil {
		return nil, errNoDeployment
	}
	for _, namespace := range d.watched() {
		list := deepCopy(emptyList)
		if err := d.cluster.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return nil, err
		}
		items, err := extractItems[T](list)
		if err != nil {
			return nil, err
		}
		all = append(all, items...)
	}
	return all, nil
}

// checkNetwork looks for sessions, which check at their start whether NetworkPolicies are enforced.
func (d *doctor) checkNetwork(ctx context.Context, check string) error {
	if d.deployment != nil && !d.runs("agenticsession") {
		d.add(check, statusOK, "", "the controller agenticsession does not run, and nothing else needs network policies")
		return nil
	}
	sessions, err := listWatched[*v1alpha1.AgenticSession](ctx, d, &v1alpha1.AgenticSessionList{})
	if err != nil {
		return err
	}
	var newest *metav1.Condition
	var session *v1alpha1.AgenticSession
	for _, candidate := range sessions {
		restricted := meta.FindStatusCondition(candidate.Status.Conditions, v1alpha1.ConditionNetworkRestricted)
		if restricted == nil || restricted.Reason != v1alpha1.ReasonNetworkPolicyEnforced && restricted.Reason != v1alpha1.ReasonNetworkNotEnforced {
			continue
		}
		if newest == nil || newest.LastTransitionTime.Before(&restricted.LastTransitionTime) {
			newest, session = restricted, candidate
		}
	}
	switch {
	case newest == nil:
		d.add(check, statusUnknown, "kubectl yardmaster session create network-check --prompt hello --namespace "+cmp.Or(d.watched()[0], d.cluster.namespace),
			"no session has checked yet whether the cluster enforces network policies; each does when it starts")
	case newest.Reason == v1alpha1.ReasonNetworkNotEnforced:
		d.add(check, statusFailed, "kubectl get daemonsets --namespace kube-system",
			"the cluster does not enforce network policies, as session %s/%s found at %s: use a network plugin that does",
			session.Namespace, session.Name, newest.LastTransitionTime.UTC().Format(time.RFC3339))
	default:
		d.add(check, statusOK, "", "the cluster enforces network policies, as session %s/%s found at %s",
			session.Namespace, session.Name, newest.LastTransitionTime.UTC().Format(time.RFC3339))
	}
	return nil
}

// checkBrokers shows the Queues whose broker does not answer, one for each broker.
func (d *doctor) checkBrokers(ctx context.Context, check string) error {
	queues, err := listWatched[*v1alpha1.Queue](ctx, d, &v1alpha1.QueueList{})
	if err != nil {
		return err
	}
	failures, waiting := map[string][]*v1alpha1.Queue{}, 0
	var order []string
	for _, q := range queues {
		reachable := meta.FindStatusCondition(q.Status.Conditions, v1alpha1.ConditionBrokerReachable)
		switch {
		case reachable == nil || reachable.Status == metav1.ConditionUnknown:
			waiting++
		case reachable.Status == metav1.ConditionFalse:
			problem := reachable.Reason + ": " + reachable.Message
			if failures[problem] == nil {
				order = append(order, problem)
			}
			failures[problem] = append(failures[problem], q)
		}
	}
	for _, problem := range order {
		first := failures[problem][0]
		more := ""
		if others := len(failures[problem]) - 1; others > 0 {
			more = fmt.Sprintf(" and %d more", others)
		}
		d.add(check, statusFailed, repairBroker(first, problem), "Queue %s/%s%s: %s", first.Namespace, first.Name, more, problem)
	}
	switch {
	case waiting > 0:
		d.add(check, statusUnknown, "", "%d of %d Queues were not compared with their broker yet", waiting, len(queues))
	case len(order) == 0:
		d.add(check, statusOK, "", "the brokers of %d Queues answer", len(queues))
	}
	return nil
}

// repairBroker returns the command that repairs what keeps a Queue from its broker.
func repairBroker(q *v1alpha1.Queue, problem string) string {
	reason, _, _ := strings.Cut(problem, ":")
	if q.Spec.Broker == nil || reason == v1alpha1.ReasonNoBroker { // the broker, if any, is that of a Policy or of the operator
		return fmt.Sprintf("kubectl explain queue.spec.broker && kubectl edit queue %s --namespace %s", q.Name, q.Namespace)
	}
	secret := q.Spec.Broker.URLSecretRef.Name
	switch reason {
	case v1alpha1.ReasonSecretNotFound:
		return fmt.Sprintf("kubectl create secret generic %s --namespace %s --from-literal=url=nats://nats.nats:4222 && kubectl label secret %s --namespace %s %s=true",
			secret, q.Namespace, secret, q.Namespace, v1alpha1.LabelBroker)
	case v1alpha1.ReasonSecretInvalid, v1alpha1.ReasonURLInvalid, v1alpha1.ReasonUnauthorized:
		return fmt.Sprintf("kubectl edit secret %s --namespace %s", secret, q.Namespace)
	default:
		return fmt.Sprintf("kubectl get secret %s --namespace %s --output go-template='{{.data.url | base64decode}}'", secret, q.Namespace)
	}
}

// RecommendedQuota is the quota of docs/security.md.
const RecommendedQuota = "count/sequentialjobs.yardmaster.dev=200,count/schedules.yardmaster.dev=50,count/queues.yardmaster.dev=50," +
	"count/workerpools.yardmaster.dev=50,count/policies.yardmaster.dev=10,count/agenticsessions.yardmaster.dev=100," +
	"count/sessionrunners.yardmaster.dev=10,count/jobs.batch=200,count/pods=200,count/deployments.apps=50,count/statefulsets.apps=50," +
	"count/networkpolicies.networking.k8s.io=120,count/configmaps=150,count/services=100,count/serviceaccounts=120," +
	"count/poddisruptionbudgets.policy=50,count/leases.coordination.k8s.io=120,count/roles.rbac.authorization.k8s.io=120," +
	"count/rolebindings.rbac.authorization.k8s.io=120"

// checkQuotas shows the namespaces in which a tenant can create any number of objects.
func (d *doctor) checkQuotas(ctx context.Context, check string) error {
	quotas, err := listWatched[*corev1.ResourceQuota](ctx, d, &corev1.ResourceQuotaList{})
	if err != nil {
		return err
	}
	namespaces := d.watched()
	if namespaces[0] == "" {
		list := &corev1.NamespaceList{}
		if err := d.cluster.List(ctx, list); err != nil {
			return err
		}
		namespaces = nil
		for i := range list.Items {
			if name := list.Items[i].Name; !strings.HasPrefix(name, "kube-") && name != d.namespace {
				namespaces = append(namespaces, name)
			}
		}
	}
	limited := map[string]bool{}
	for _, quota := range quotas {
		for resource := range quota.Spec.Hard {
			limited[quota.Namespace+" "+string(resource)] = true
		}
	}
	lacking := map[string][]string{} // namespaces by what no quota limits there
	for _, namespace := range namespaces {
		var unlimited []string
		for limit := range strings.SplitSeq(RecommendedQuota, ",") {
			resource, _, _ := strings.Cut(limit, "=")
			if !limited[namespace+" "+resource] {
				unlimited = append(unlimited, strings.TrimSuffix(strings.TrimPrefix(resource, "count/"), ".yardmaster.dev"))
			}
		}
		if len(unlimited) > 0 {
			kinds := enumerate(unlimited)
			lacking[kinds] = append(lacking[kinds], namespace)
		}
	}
	for _, kinds := range slices.Sorted(maps.Keys(lacking)) {
		in := lacking[kinds]
		d.add(check, statusWarning, fmt.Sprintf("kubectl create quota yardmaster --namespace %s --hard=%s", in[0], RecommendedQuota),
			"no quota limits %s in namespace %s, so that a tenant can fill the operator's memory", kinds, enumerate(in))
	}
	if len(lacking) == 0 {
		d.add(check, statusOK, "", "quotas limit the objects in %d namespaces", len(namespaces))
	}
	return nil
}

// enumerate lists the first three words, and counts the others.
func enumerate(words []string) string {
	const shown = 3
	if len(words) <= shown {
		return strings.Join(words, ", ")
	}
	return fmt.Sprintf("%s, and %d more", strings.Join(words[:shown], ", "), len(words)-shown)
}

// The clocks of Kubernetes agree within seconds. From maxClockSkew on, Schedules report it, too.
const (
	clockTolerance = 5 * time.Second
	maxClockSkew   = 5 * time.Minute
)

// checkClocks compares the clocks of this machine and of the operator with that of the API server.
func (d *doctor) checkClocks(ctx context.Context, check string) error {
	const synchronize = "timedatectl set-ntp true"
	d.compareClock(check, "this machine", synchronize, d.now().Sub(d.serverTime))
	lease := &coordinationv1.Lease{}
	err := client.IgnoreNotFound(d.cluster.Get(ctx, client.ObjectKey{Namespace: d.namespace, Name: operatorLease}, lease))
	if err != nil {
		return err
	}
	if lease.Spec.RenewTime == nil {
		d.add(check, statusUnknown, "", "the operator has no Lease %s/%s, whose times show its clock", d.namespace, operatorLease)
		return nil
	}
	// The operator sets the time of the renewal, and the API server that of the write.
	pod, _, _ := strings.Cut(ptr.Deref(lease.Spec.HolderIdentity, ""), "_")
	node := fmt.Sprintf("$(kubectl get pod %s --namespace %s --output jsonpath='{.spec.nodeName}')", pod, d.namespace)
	d.compareClock(check, "the operator", "kubectl debug node/"+node+" --profile=sysadmin --image=busybox -- chroot /host "+synchronize,
		lease.Spec.RenewTime.Sub(lastWrite(&lease.ObjectMeta)))
	return nil
}

func (d *doctor) compareClock(check, of, fix string, ahead time.Duration) {
	direction := "ahead of"
	if ahead < 0 {
		direction = "behind"
	}
	switch skew := ahead.Abs().Round(time.Second); {
	case skew <= clockTolerance:
		d.add(check, statusOK, "", "the clock of %s agrees with that of the API server", of)
	case skew < maxClockSkew || of == "this machine":
		d.add(check, statusWarning, fix, "the clock of %s is %s %s that of the API server", of, skew, direction)
	default:
		d.add(check, statusFailed, fix, "the clock of %s is %s %s that of the API server: Schedules start at wrong times", of, skew, direction)
	}
}
