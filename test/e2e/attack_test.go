//go:build e2e

package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool"
	"github.com/yardmaster/yardmaster/test/hostile"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
)

const (
	// peerSeconds is how long each attack on a port lasts: longer than the reply to a spec change.
	peerSeconds = "5"
	// serverAttackTime is how long hostile servers answer the operator: several attempts each.
	serverAttackTime = 20 * time.Second
)

// testHostilePeers attacks each port in all ways at the same time. make soak also tries each attack alone, in which the
// operator may use less memory.
func (env *attackEnv) testHostilePeers(t *testing.T) {
	for _, port := range []string{"webhook:", "metrics:", "health:"} {
		t.Run(port+" all attacks", func(t *testing.T) { env.attack(t, port, maxCombinedGrowth) })
	}
	if !isSoaking() {
		return
	}
	for _, title := range slices.Sorted(maps.Keys(hostile.Peers())) {
		t.Run(title, func(t *testing.T) { env.attack(t, title, maxMemoryGrowth) })
	}
}

// attack attacks the operator in the ways whose titles have the prefix.
func (env *attackEnv) attack(t *testing.T, prefix string, maxGrowth float64) {
	t.Helper()
	args := []string{"-n", attackerNamespace, "exec", env.attacker.Name, "--", "/attacker", "attack", prefix, peerSeconds}
	for i := range env.pods {
		args = append(args, env.pods[i].Status.PodIP)
	}
	env.check(t, env.measure(t, func(t *testing.T) {
		output, err := newKubectlCommand(t.Context(), args...).CombinedOutput()
		t.Logf("%s", output)
		require.NoError(t, err)
	}), maxGrowth)
}

// testHostileServers creates a Queue or a WorkerPool for each attack, all of one tenant and at the same
// time.
func (env *attackEnv) testHostileServers(t *testing.T) {
	titles := slices.Concat(slices.Collect(maps.Keys(hostile.Brokers())), slices.Collect(maps.Keys(hostile.Sources())))
	var objects []client.Object
	env.check(t, env.measure(t, func(t *testing.T) {
		start := time.Now()
		for i, title := range titles {
			objects = append(objects, env.createHostile(t, fmt.Sprintf("hostile-%02d", i), title))
		}
		objects = append(objects, env.createHostileWorkers(t))
		for i, title := range titles {
			poll.Until(t, title+" to be reported", func() bool { return isFailureReported(t, objects[i]) })
		}
		poll.Until(t, "all attacks to take place", func() bool { return missingAttacks(t).Len() == 0 })
		time.Sleep(serverAttackTime - time.Since(start)) // the attacks continue meanwhile
	}), maxCombinedGrowth)
	for _, object := range objects {
		t.Logf("%s: %s", object.GetName(), failureOf(object))
	}
}

// createHostile creates an object that makes the operator connect to a hostile server.
func (env *attackEnv) createHostile(t *testing.T, name, title string) client.Object {
	t.Helper()
	address := fmt.Sprintf("%s:%d", env.attacker.Status.PodIP, hostile.Port(title))
	if broker, is := hostile.Brokers()[title]; is {
		return env.createQueue(t, attackerNamespace, name, broker.Engine, broker.Scheme+"://"+address)
	}
	source := hostile.Sources()[title]
	createBrokerSecret(t, attackerNamespace, name, source.Scheme+address)
	return createSourcePool(t, name, source.Spec(name, address))
}

// createSourcePool creates a WorkerPool that is scaled by a source.
func createSourcePool(t *testing.T, name string, source v1alpha1.Source) *v1alpha1.WorkerPool {
	t.Helper()
	pool := &v1alpha1.WorkerPool{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: attackerNamespace}}
	pool.Spec.Source, pool.Spec.Autoscaling = &source, &v1alpha1.Autoscaling{MaxReplicas: 1}
	pool.Spec.Template = &corev1.PodTemplateSpec{Spec: attackerPodSpec("work")}
	createUntilEnd(t, pool)
	return pool
}

// createHostileWorkers creates a pool whose workers attack the operator when it reads their stats.
func (*attackEnv) createHostileWorkers(t *testing.T) client.Object {
	t.Helper()
	workers := &v1alpha1.WorkerPool{ObjectMeta: metav1.ObjectMeta{Name: "hostile-workers", Namespace: attackerNamespace}}
	workers.Annotations = map[string]string{workerpool.AnnotationAbandon: "true"} // its source never confirms that it is drained
	workers.Spec.Source = &v1alpha1.Source{External: &v1alpha1.ExternalSource{Address: "192.0.2.1:1"}}
	workers.Spec.Autoscaling = &v1alpha1.Autoscaling{MinReplicas: 5, MaxReplicas: 5}
	workers.Spec.Template = &corev1.PodTemplateSpec{Spec: attackerPodSpec("work")}
	workers.Spec.Drain = &v1alpha1.Drain{Timeout: durationOfSeconds(1), TerminationGrace: durationOfSeconds(1)}
	createUntilEnd(t, workers)
	return workers
}

// missingAttacks returns the attacks that have not taken place, by the logs of the attackers.
func missingAttacks(t *testing.T) sets.Set[string] {
	t.Helper()
	missing := sets.KeySet(hostile.All())
	missing = missing.Union(sets.KeySet(hostile.Workers()))
	pods := podsWith(t, attackerNamespace, nil)
	for i := range pods {
		logs, err := clientset.CoreV1().Pods(attackerNamespace).GetLogs(pods[i].Name, &corev1.PodLogOptions{}).DoRaw(t.Context())
		if err != nil {
			continue // it has not started yet
		}
		missing.Delete(strings.Split(string(logs), "\n")...)
	}
	return missing
}

// isFailureReported reads a Queue or a WorkerPool.
func isFailureReported(t *testing.T, object client.Object) bool {
	t.Helper()
	require.NoError(t, cluster.Get(t.Context(), client.ObjectKeyFromObject(object), object))
	return failureOf(object) != ""
}

// failureOf returns the message of the condition that says that the operator cannot use a broker or source.
func failureOf(object client.Object) string {
	var condition *metav1.Condition
	switch object := object.(type) {
	case *v1alpha1.Queue:
		condition = meta.FindStatusCondition(object.Status.Conditions, v1alpha1.ConditionBrokerReachable)
	case *v1alpha1.WorkerPool:
		condition = meta.FindStatusCondition(object.Status.Conditions, v1alpha1.ConditionScalingActive)
		if condition != nil && condition.Reason != v1alpha1.ReasonMetricsStale {
			return ""
		}
	}
	if condition == nil || condition.Status != metav1.ConditionFalse {
		return ""
	}
	return condition.Message
}

// deniedHosts are the host itself, in several notations, and metadata services.
var deniedHosts = map[string]string{
	"loopback": "127.0.0.1", "all of loopback": "127.9.9.9", "loopback in IPv6": "[::1]", "mapped loopback": "[::ffff:127.0.0.1]",
	"unspecified": "0.0.0.0", "metadata": "169.254.169.254", "metadata in IPv6": "[fd00:ec2::254]", "a local name": "localhost",
}

func (env *attackEnv) testDeniedAddresses(t *testing.T) {
	const denied = "does not connect to this address"
	// 8081 is the operator's health port, which would answer.
	for what, host := range deniedHosts {
		t.Run(what, func(t *testing.T) {
			name := "denied-" + strings.ReplaceAll(what, " ", "-")
			name = strings.ToLower(name)
			pool := createSourcePool(t, name, hostile.ScalerSource(v1alpha1.BrokerAccess{}, host+":8081"))
			queue := env.createQueue(t, attackerNamespace, name, v1alpha1.EngineNATS, "nats://"+host+":8081")
			for _, object := range []client.Object{pool, queue} {
				poll.Until(t, what+" to be denied", func() bool { return isFailureReported(t, object) })
				require.True(t, strings.Contains(failureOf(object), denied), "%T: %s", object, failureOf(object))
			}
		})
	}
	t.Run("names that resolve to these", func(t *testing.T) { env.testDeniedNames(t) })
}

// testDeniedNames uses names that the cluster's DNS resolves to the operator itself and to a metadata
// service. Their servers are reported like any other that does not answer.
func (env *attackEnv) testDeniedNames(t *testing.T) {
	for name, address := range map[string]string{"operator-itself": leaderPod(t).Status.PodIP, "metadata-service": "100.100.100.200"} {
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: attackerNamespace}}
		service.Spec.ClusterIP, service.Spec.Ports = corev1.ClusterIPNone, []corev1.ServicePort{{Port: 8081}}
		slice := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{address}}}}
		slice.ObjectMeta = metav1.ObjectMeta{Name: name, Namespace: attackerNamespace, Labels: map[string]string{discoveryv1.LabelServiceName: name}}
		slice.Ports = []discoveryv1.EndpointPort{{Port: new(int32(8081))}}
		for _, object := range []client.Object{service, slice} {
			createUntilEnd(t, object)
		}
		queue := env.createQueue(t, attackerNamespace, name, v1alpha1.EngineNATS, fmt.Sprintf("nats://%s.%s.svc.cluster.local:8081", name, attackerNamespace))
		poll.Until(t, name+" to be refused", func() bool { return isFailureReported(t, queue) })
		if message := failureOf(queue); strings.Contains(message, address) || !strings.Contains(message, "unreachable") {
			t.Errorf("%s: %s", name, message)
		}
	}
}
