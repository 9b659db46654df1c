//go:build e2e

package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nkeys"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// hubServer has a JetStream domain and accepts leaf nodes.
const hubServer = `
port: 4222
http_port: 8222
jetstream: {store_dir: /data, domain: hub}
leafnodes: {port: 7422}
`

// leafServer is a leaf node without JetStream. Its only user may send requests only to the domain of the hub,
// and subscribe only to its own inboxes.
const leafServer = `
port: 4222
leafnodes: {remotes: [{url: "nats-leaf://nats.%s:7422"}]}
authorization: {users: [{nkey: %s, permissions: {
	publish: ["$JS.hub.API.>", "$JS.ACK.>", "yardmaster.>"],
	subscribe: ["yardmaster.>", "_INBOX_orders.>"],
}}]}
`

func testConnectionSettingsReachAllClients(t *testing.T) {
	env := newQueueEnv(t, connectionNamespace)
	user, err := nkeys.CreateUser()
	requireNoError(t, err)
	public, err := user.PublicKey()
	requireNoError(t, err)
	seed, err := user.Seed()
	requireNoError(t, err)
	env.configureServer(hubServer)
	env.startLeafNode(fmt.Sprintf(leafServer, env.namespace, public))

	env.createLogin(map[string][]byte{"nkey": seed})
	env.runKubectl("patch", "secret", "broker", "-p", fmt.Sprintf(`{"stringData":{"url":"nats://leaf.%s:4222"}}`, env.namespace))
	env.patchQueue(`{"spec":{"broker":{"credentialsSecretRef":{"name":"login"},"nats":{"jetStreamDomain":"hub","inboxPrefix":"_INBOX_orders"}}}}`)
	env.createPool(func(pool *v1alpha1.WorkerPool) { setFixedReplicas(pool, 1, 5) })
	env.waitUntilWorkers(1)
	env.sendBatch(jobBatch{queue: "orders", run: "job", jobs: 50, rate: 50, takes: 20 * time.Millisecond})
	env.waitUntilAllDone()
	env.wantEachDoneOnce(1, "job")
}

// configureServer restarts the broker with a configuration file.
func (env *queueEnv) configureServer(file string) {
	env.t.Helper()
	volume, mount := env.createServerConfig("hub", file)
	env.restartBroker(map[string]any{
		"containers": []any{map[string]any{"name": "nats", "args": []string{serverConfigArg}, "volumeMounts": []any{mount}}},
		"volumes":    []any{volume},
	})
}

// startLeafNode starts a NATS server and the Service "leaf" for it.
func (env *queueEnv) startLeafNode(file string) {
	env.t.Helper()
	volume, mount := env.createServerConfig("leaf", file)
	hub := &appsv1.StatefulSet{}
	requireNoError(env.t, cluster.Get(env.t.Context(), env.objectKey("nats"), hub))
	meta := metav1.ObjectMeta{Name: "leaf", Namespace: env.namespace, Labels: map[string]string{"app": "leaf"}}
	leaf := &corev1.Pod{ObjectMeta: meta, Spec: env.newPodSpec("/nats-server", serverConfigArg)}
	leaf.Spec.Volumes = []corev1.Volume{volume}
	leaf.Spec.Containers[0].Image = hub.Spec.Template.Spec.Containers[0].Image
	leaf.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{mount}
	requireNoError(env.t, cluster.Create(env.t.Context(), leaf))
	requireNoError(env.t, cluster.Create(env.t.Context(), &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{
		Selector: meta.Labels, Ports: []corev1.ServicePort{{Port: 4222}},
	}}))
	env.runKubectl("wait", "--for=condition=Ready", "pod/leaf", "--timeout=10m")
}

const serverConfigArg = "--config=/config/nats.conf"

func (env *queueEnv) createServerConfig(name, file string) (corev1.Volume, corev1.VolumeMount) {
	env.t.Helper()
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "nats-" + name, Namespace: env.namespace}, Data: map[string]string{"nats.conf": file}}
	requireNoError(env.t, cluster.Create(env.t.Context(), config))
	return corev1.Volume{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: config.Name},
	}}}, corev1.VolumeMount{Name: "config", MountPath: "/config"}
}
