package integration

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
)

func newManifest(t *testing.T, kind, ns, name, spec string) *unstructured.Unstructured {
	t.Helper()
	text := fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {namespace: %q, name: %q}\nspec: %s\n", v1alpha1.GroupVersion, kind, ns, name, spec)
	manifest, err := decode([]byte(text))
	require.True(t, err == nil, "%s: %v", text, err)
	return manifest
}

// invalidSpec is a spec that the API server refuses with this error, or a change of a spec, with "=>" between both.
type invalidSpec struct{ title, spec, want string }

func assertSpecsRefused(t *testing.T, kind string, specs []invalidSpec) {
	t.Helper()
	shared := namespace(t) // nothing of the specs is stored, except before a change
	for _, bad := range specs {
		t.Run(bad.title, func(t *testing.T) {
			t.Parallel()
			ns, spec := shared, bad.spec
			before, after, isChange := strings.Cut(bad.spec, " => ")
			if isChange {
				ns, spec = namespace(t), after
				mustCreate(t, newManifest(t, kind, ns, "demo", before))
			}
			assertRefused(t, newManifest(t, kind, ns, "demo", spec), isChange, bad.want)
		})
	}
}

// aboutValue is what the API server says about a value before it says what is wrong with it.
var aboutValue = regexp.MustCompile(`Invalid value: (?:(?:"(?:[^"\\]|\\.)*"|[^\s":]+): )?(?:\S+ in body )?`)

func assertRefused(t *testing.T, object *unstructured.Unstructured, isChange bool, want string) {
	t.Helper()
	err := apply(t.Context(), strictClient(t, &warningList{}), object, isChange)
	require.True(t, err != nil, "the API server accepts the object, want: %s", want)
	says := aboutValue.ReplaceAllString(messageOf(err), "")
	require.True(t, strings.Contains(says, want), "the error is %q, want %q", says, want)
}

func TestQueueRules(t *testing.T) {
	t.Parallel()
	on := func(engine, more string) string {
		return `{broker: {engine: ` + engine + `, urlSecretRef: {name: a}, ` + more + `}}`
	}
	for name, want := range map[string]string{
		"mail.eu": "metadata.name is not a valid queue name", "yardmaster": "name is reserved: names that start with yardmaster",
	} {
		assertRefused(t, newManifest(t, "Queue", namespace(t), name, "{}"), false, "spec.name: "+want)
	}
	assertSpecsRefused(t, "Queue", []invalidSpec{
		{"an invalid name on the broker", `{name: Mail}`, `spec.name: should match`},
		{"a reserved name", `{name: yardmaster-mail}`, "spec.name: name is reserved: names that start with yardmaster belong to the operator"},
		{"a changed name", `{name: mail} => {name: post}`, "spec.name: name is immutable: the broker stores the messages under it"},
		{"a removed name", `{name: mail} => {}`, "spec.name: name is immutable: the broker stores the messages under it"},
		{"settings of NATS on another engine", on("Asynq", `nats: {jetStreamDomain: hub}`), "broker.nats: nats has settings of the engine NATS"},
		{"a domain with a wildcard", on("NATS", `nats: {jetStreamDomain: "*"}`), "broker.nats.jetStreamDomain: should match"},
		{"an inbox prefix that ends with a dot", on("NATS", `nats: {inboxPrefix: a.}`), "broker.nats.inboxPrefix: should match"},
		{"Sentinels on another engine", on("NATS", `sentinel: {masterName: main}`), "broker.sentinel: sentinel finds a Redis server"},
		{"a name of a master with a space", on("Asynq", `sentinel: {masterName: my master}`), "sentinel.masterName: should match"},
		{"a priority name with upper-case letters", `{priorities: [{name: High}]}`, `spec.priorities[0].name: should match`},
		{"equal weights with strictPriority", `{strictPriority: true, priorities: [{name: a}, {name: b}]}`, "with strictPriority"},
		{"a rate limit per 0s", `{rateLimit: {limit: 1, per: 0s}}`, `spec.rateLimit.per: per must be a duration from 1s to 24h`},
		{"maxInFlight above maxBacklog", `{maxInFlight: 11, maxBacklog: 10}`, "spec.maxInFlight: maxInFlight must not be greater than maxBacklog"},
		{"a lease above 1h", `{lease: 61m}`, `spec.lease: lease must be a duration from 5s to 1h`},
		{"a messageTimeout above 24h", `{messageTimeout: 25h}`, `spec.messageTimeout: messageTimeout must be a duration from 1s to 24h`},
		{"a lease in days", `{lease: 1d}`, `spec.lease: lease must be a duration from 5s to 1h`},
		{"a negative delay", `{retry: {backoff: -1s}}`, `spec.retry.backoff: backoff must be a duration from 0s to 24h`},
		{"backoff above maxBackoff", `{retry: {backoff: 2m, maxBackoff: 1m}}`, "spec.retry.backoff: backoff must not be longer than maxBackoff"},
		{"a factor below 1", `{retry: {factor: 0.9}}`, "spec.retry.factor: factor must be from 1 to 10"},
		{"onDelete Move without moveToRef", `{deadLetter: {onDelete: Move}}`, "deadLetter.moveToRef: moveToRef is required with onDelete: Move"},
		{"moveToRef is not a valid name", `{deadLetter: {onDelete: Move, moveToRef: {name: 0.0.0.0/0}}}`, `spec.deadLetter.moveToRef.name: should match`},
		{"moveToRef the same Queue", `{deadLetter: {onDelete: Move, moveToRef: {name: demo}}}`, "deadLetter.moveToRef: moveToRef must be another Queue"},
		{"maxAge below 1m", `{maxAge: 1s}`, `spec.maxAge: maxAge must be a duration from 1m to 87600h`},
		{"retention of results below the lease", `{lease: 10m, results: {retention: 5m}}`, "results.retention: retention must not be shorter than lease"},
		{"another type of storage", `{storage: {type: Memory}} => {storage: {type: File}}`, "storage.type: type is immutable"},
		{"a removed type of storage", `{storage: {type: Memory}} => {storage: {replicas: 3}}`, "storage.type: type is immutable"},
		{"a tag with a space", `{storage: {placement: {tags: ["a b"]}}}`, `spec.storage.placement.tags[0]: should match`},
		{"a name that no Secret can have", `{broker: {engine: NATS, urlSecretRef: {name: a/b}}}`, `spec.broker.urlSecretRef.name: should match`},
		{"a URL in the spec", `{broker: {engine: NATS, url: "nats://me:secret@nats:4222"}}`, `unknown field "spec.broker.url"`},
	})
}

func TestWorkerPoolRules(t *testing.T) {
	t.Parallel()
	// with returns a valid spec with one change.
	with := func(more string) string {
		return `{queues: [{name: mail}], image: "registry.example/mail:1", replicas: 1, ` + more + `}`
	}
	scaled := func(more string) string {
		return `{queues: [{name: mail}], image: "registry.example/mail:1", autoscaling: {maxReplicas: 10, ` + more + `}}`
	}
	source := func(of string) string { return `{image: a, replicas: 1, source: {` + of + `}}` }
	tooMany := with(`template: {spec: {containers: [{name: worker, image: a}], initContainers: [` + containers(65) + `]}}`)
	assertSpecsRefused(t, "WorkerPool", []invalidSpec{
		{"neither queues nor source", `{image: a, replicas: 1}`, "spec: set either queues or source"},
		{"both queues and source", with(`source: {redis: {urlSecretRef: {name: redis}, key: mail}}`), "spec: set either queues or source"},
		{"a source of two types", source(`redis: {urlSecretRef: {name: redis}, key: mail}, external: {address: "a:9"}`), "exactly one of the fields in"},
		{"a source with a name that no Secret can have", source(`redis: {urlSecretRef: {name: UPPER}, key: mail}`), "urlSecretRef.name: should match"},
		{"a stream whose name is a subject", source(`natsJetStream: {urlSecretRef: {name: nats}, stream: a.b, consumer: c}`), "stream: should match"},
		{"an external source without a port", source(`external: {address: scaler}`), "source.external.address: should match"},
		{"no image", `{queues: [{name: mail}], replicas: 1}`, "image: the worker has no image: set image, or the image of container worker in template"},
		{"no container named worker", with(`template: {spec: {containers: [{name: main, image: a}]}}`), "one of the containers must be named worker"},
		{"more containers than the memory of the operator allows", tooMany, "template may have at most 64 containers of each type"},
		{"a restartPolicy other than Always", with(`template: {spec: {restartPolicy: OnFailure}}`), "restartPolicy: restartPolicy must be Always"},
		{"a reserved label in the template", with(`template: {metadata: {labels: {yardmaster.dev/a: b}}}`), "labels and annotations under yardmaster"},
		{"a version that is not a label value", with(`version: "1.0 beta"`), `spec.version: should match`},
		{"maxInFlight below concurrency", with(`concurrency: 10, maxInFlight: 9`), "spec.maxInFlight: maxInFlight must not be less than concurrency"},
		{"replicas and autoscaling", scaled(`}, replicas: 2, rollout: {`), "spec: set either replicas or autoscaling; to influence an autoscaled pool"},
		{"minReplicas above maxReplicas", scaled(`minReplicas: 11`), "spec.autoscaling.minReplicas: minReplicas must not be greater than maxReplicas"},
		{"fallback replicas above maxReplicas", scaled(`fallback: {replicas: 11}`), "fallback.replicas: fallback.replicas must not be greater than"},
		{"an SLO of 0s", scaled(`waitP95: 0s`), `spec.autoscaling.waitP95: waitP95 must be a duration from 1s to 24h`},
		{"maxStep of 0%", scaled(`scaleUp: {maxStep: "0%"}`), "scaleUp.maxStep: maxStep must be a number from 1 to 10000 or a percentage"},
		{"a period of 0s", scaled(`scaleDown: {period: 0s}`), `spec.autoscaling.scaleDown.period: period must be a duration from 1s to 1h`},
		{"a canary without steps", with(`rollout: {strategy: Canary}`), "rollout.steps: steps are required with strategy Canary"},
		{"decreasing canary steps", with(`rollout: {strategy: Canary, steps: [{percent: 50}, {percent: 10}]}`), "the percentages of the steps must not"},
		{"an analysis without a canary", with(`rollout: {analysis: {minSamples: 5}}`), "spec.rollout.analysis: analysis requires strategy Canary"},
		{"maxSurge and maxUnavailable of 0", with(`rollout: {maxSurge: 0, maxUnavailable: "0%"}`), "maxSurge and maxUnavailable must not both be 0"},
		{"an invalid maxSurge", with(`rollout: {maxSurge: some}`), "rollout.maxSurge: maxSurge must be a number from 0 to 10000 or a percentage"},
		{"a disruption budget above 100%", with(`disruption: {maxUnavailable: "101%"}`), "disruption.maxUnavailable: maxUnavailable must be a number from"},
	})
}

func TestPolicyRules(t *testing.T) {
	t.Parallel()
	assertSpecsRefused(t, "Policy", []invalidSpec{
		{"a default backoff above maxBackoff", `{defaults: {retry: {backoff: 2m, maxBackoff: 1m}}}`, "backoff: backoff must not be longer than maxBackoff"},
		{"a name that no Secret can have", `{defaults: {broker: {engine: NATS, urlSecretRef: {name: ".."}}}}`, "urlSecretRef.name: should match"},
		{"a default onDelete Move without moveToRef", `{defaults: {deadLetter: {onDelete: Move}}}`, "defaults.deadLetter.moveToRef: moveToRef is required"},
		{"a circuit breaker cooldown above 1h", `{defaults: {circuitBreaker: {cooldown: 48h}}}`, "circuitBreaker.cooldown: cooldown must be a duration"},
		{"more replicas per pool than in total", `{limits: {maxReplicasTotal: 10, maxReplicasPerPool: 11}}`, "maxReplicasPerPool must not be greater than"},
	})
}

func TestDefaultsOfFields(t *testing.T) {
	t.Parallel()
	ns := namespaceWithoutWebhook(t)
	for kind, row := range map[string]struct{ spec, want string }{
		"Queue": {"{}", `{priorities: [{name: default, weight: 1}], lease: 30s, deletionPolicy: Retain, drift: Correct}`}, // an object without spec
		"WorkerPool": {
			`{queues: [{name: mail}], image: a, autoscaling: {maxReplicas: 3, fallback: {replicas: 1}}}`,
			`{queues: [{name: mail, weight: 1}], image: a, concurrency: 10, replicas: 1,
			autoscaling: {minReplicas: 0, maxReplicas: 3, idleAfter: 60s, waitP95: 30s, fallback: {replicas: 1, after: 60s}},
			rollout: {strategy: Rolling, maxSurge: "25%", maxUnavailable: 0, progressDeadline: 30m, revisionHistory: 3},
			disruption: {maxUnavailable: 1}, priority: 0, preemption: Never, workload: Deployment, networkPolicy: Managed}`,
		},
		"AgenticSession": {
			`{prompt: a, repos: [{url: "https://a/b"}], workspace: {}, retry: {}}`,
			`{prompt: a, interactive: false, runner: default, repos: [{url: "https://a/b"}], workspace: {retention: Delete, onLost: Fail}, retry: {}}`,
		},
	} {
		object, want := newManifest(t, kind, ns, "demo", row.spec), newManifest(t, kind, ns, "demo", row.want)
		if row.spec == "{}" {
			unstructured.RemoveNestedField(object.Object, "spec")
		}
		mustCreate(t, object)
		assert.Equal(t, "the defaults of "+kind, want.Object["spec"], object.Object["spec"])
	}
}

func TestScaleSubresourceIsRefusedWithAutoscaling(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	scaleTo := func(name, spec string) error {
		object := newManifest(t, "WorkerPool", ns, name, spec)
		mustCreate(t, object)
		scale := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": map[string]any{"replicas": int64(5)},
		}}
		return cluster.SubResource("scale").Patch(t.Context(), object, client.Merge, client.WithSubResourceBody(scale))
	}
	wantAllowed(t, "scaling a pool with replicas", scaleTo("manual", `{queues: [{name: mail}], image: a, replicas: 1}`))
	pool := mustGet(t, client.ObjectKey{Namespace: ns, Name: "manual"}, &v1alpha1.WorkerPool{})
	require.True(t, pool.Spec.Replicas != nil && *pool.Spec.Replicas == 5, "the pool has %v replicas, want 5", pool.Spec.Replicas)
	err := scaleTo("scaled", `{queues: [{name: mail}], image: a, autoscaling: {maxReplicas: 3}}`)
	require.True(t, apierrors.IsInvalid(err) && strings.Contains(err.Error(), "to influence an autoscaled pool, change autoscaling.minReplicas"),
		"the scale subresource of an autoscaled pool returns %v", err)
}

func containers(number int) string {
	var list []string
	for i := range number {
		list = append(list, fmt.Sprintf("{name: c%d}", i))
	}
	return strings.Join(list, ", ")
}

func TestAgenticSessionRules(t *testing.T) {
	t.Parallel()
	for _, name := range []string{strings.Repeat("a", 53), "1a"} {
		const want = "metadata.name must begin with a letter and have at most 52 lower-case letters, digits and dashes"
		assertRefused(t, newManifest(t, "AgenticSession", namespace(t), name, "{prompt: a}"), false, want)
	}
	assertSpecsRefused(t, "AgenticSession", []invalidSpec{
		{"a cost of 0", `{prompt: a, limits: {maxCostUSD: 0}}`, "spec.limits.maxCostUSD: maxCostUSD must be from 0.000001 to 1000000000"},
		{"a cost of 1000000001", `{prompt: a, limits: {maxCostUSD: 1000000001}}`, "spec.limits.maxCostUSD: maxCostUSD must be from 0.000001 to 1000000000"},
		{"no prompt", `{}`, "spec.prompt: Required value: prompt is required, unless the session is interactive or has an agent.workflow"},
		{"an empty prompt", `{prompt: ""}`, `spec.prompt: should be at least 1 chars long`},
		{"a prompt of more than 64 KiB", `{prompt: "` + strings.Repeat("é", 32769) + `"}`, "spec.prompt: prompt must not have more than 65536 bytes"},
		{"a changed prompt", `{prompt: a} => {prompt: b}`, "spec.prompt: prompt is immutable"},
		{"a changed userContext", `{prompt: a} => {prompt: a, userContext: {userID: mallory}}`, "spec.userContext: userContext is immutable"},
		{"interactive changed to false", `{prompt: a, interactive: true} => {prompt: a}`, "spec.interactive: interactive is immutable"},
		{"a duplicate repo", `{prompt: a, repos: [{url: "https://a/b"}, {url: "https://a/b", branch: c}]}`, `spec.repos[1]: Duplicate value`},
		{"two repos with the same name", `{prompt: a, repos: [{url: "https://a/b", name: x}, {url: "https://a/c", name: x}]}`, "names of repos must"},
		{"a repo without a URL", `{prompt: a, repos: [{name: x}]}`, "spec.repos[0].url: Required value"},
		{"a repo with an http URL", `{prompt: a, repos: [{url: "http://a/b"}]}`, `spec.repos[0].url: the URL must be https://, ssh:// or git@host:path`},
		{"a repo URL with a git remote helper", `{prompt: a, repos: [{url: "ext::sh -c id"}]}`, "repos[0].url: the URL must be https://, ssh:// or"},
		{"a repo URL that is a command-line option", `{prompt: a, repos: [{url: "--upload-pack=id"}]}`, "repos[0].url: the URL must be https://, ssh"},
		{"a token in a repo URL", `{prompt: a, repos: [{url: "https://token@a/b"}]}`, "repos[0].url: the URL must not contain credentials"},
		{"a password in an ssh URL", `{prompt: a, repos: [{url: "ssh://git:secret@a/b"}]}`, "repos[0].url: the URL must not contain credentials"},
		{"a branch that is a command-line option", `{prompt: a, repos: [{url: "https://a/b", branch: "--force"}]}`, `spec.repos[0].branch: should match`},
		{"a repo name with a path to a parent directory", `{prompt: a, repos: [{url: "https://a/b", name: "../x"}]}`, `spec.repos[0].name: should match`},
		{"an environment variable with a dash", `{prompt: a, environmentVariables: {A-B: c}}`, "names of environment variables must be C identifiers"},
		{"an environment variable with a reserved prefix", `{prompt: a, environmentVariables: {AGENTIC_RUN: "7"}}`, "names that begin with AGENTIC_"},
		{"the environment variable LD_PRELOAD", `{prompt: a, environmentVariables: {LD_PRELOAD: /workspace/x.so}}`, "names that begin with AGENTIC_"},
		{"the environment variable PATH", `{prompt: a, environmentVariables: {PATH: /workspace}}`, "names that begin with AGENTIC_"},
		{"a Secret mounted twice", `{prompt: a, secretMounts: [{name: a}, {name: a, mountPath: /secrets/b}]}`, `spec.secretMounts[1]: Duplicate value`},
		{"a Secret whose name is a path", `{prompt: a, secretMounts: [{name: ../b, mountPath: /secrets/b}]}`, `spec.secretMounts[0].name: should match`},
		{"a Secret mounted outside /secrets", `{prompt: a, secretMounts: [{name: a, mountPath: /usr/bin}]}`, "secretMounts[0].mountPath: should match"},
		{"a Secret mount path with ..", `{prompt: a, secretMounts: [{name: a, mountPath: /secrets/../etc}]}`, "secretMounts[0].mountPath: should match"},
		{"a negative timeout", `{prompt: a, limits: {timeout: -1s}}`, `spec.limits.timeout: timeout must be a duration from 0s to 8760h`},
		{"a timeout above one year", `{prompt: a, limits: {timeout: 8761h}}`, `spec.limits.timeout: timeout must be a duration from 0s to 8760h`},
		{"inactivityTimeout above timeout", `{prompt: a, limits: {timeout: 1m, inactivityTimeout: 61s}}`, "inactivityTimeout must not be greater than"},
		{"inactivityTimeout above the default of timeout", `{prompt: a, limits: {inactivityTimeout: 5h}}`, "inactivityTimeout must not be greater than"},
		{"a rerun without id", `{prompt: a, rerun: {}}`, "spec.rerun.id: Required value"},
		{"more than 5 retries", `{prompt: a, retry: {limit: 6}}`, "spec.retry.limit: limit must be from 0 to 5"},
		{"a workspace size of 0", `{prompt: a, workspace: {size: "0"}}`, `spec.workspace.size: size must be greater than zero`},
		{"a changed workspace", `{prompt: a, workspace: {size: 1Gi}} => {prompt: a, workspace: {size: 2Gi}}`, "spec.workspace: workspace is immutable"},
		{"an added workspace", `{prompt: a} => {prompt: a, workspace: {}}`, "spec.workspace: workspace is immutable, except onLost"},
		{"an unknown onLost", `{prompt: a, workspace: {onLost: Ignore}}`, `spec.workspace.onLost: Unsupported value: "Ignore"`},
		{"workspace and continueFrom", `{prompt: a, workspace: {}, continueFrom: {name: b}}`, "spec.workspace: with continueFrom the session uses"},
		{"a changed continueFrom", `{prompt: a, continueFrom: {name: b}} => {prompt: a, continueFrom: {name: c}}`, "continueFrom is immutable"},
		{"a workflow without a URL", `{agent: {workflow: {branch: main}}}`, "spec.agent.workflow.url: Required value"},
		{"a workflow path outside the repository", `{agent: {workflow: {url: "https://a/b", path: a/../../b}}}`, "path must stay within the repository"},
		{"an unknown field", `{prompt: a, securityContext: {privileged: true}}`, `unknown field "spec.securityContext"`},
		// Of the ambient-code platform. docs/agenticsession.md lists what has to be changed.
		{"a userId", `{prompt: a, userContext: {userId: jane}}`, `unknown field "spec.userContext.userId"`},
		{"a name without a prompt", `{displayName: Chat}`, "prompt is required"},
		{"an input", `{prompt: a, repos: [{input: {url: "https://a/b.git", branch: main}}]}`, `unknown field "spec.repos[0].input"`},
		{"an output", `{prompt: a, repos: [{url: "https://a/b.git", output: {url: "https://a/c.git"}}]}`, `unknown field "spec.repos[0].output"`},
	})
}

func TestSessionRunnerRules(t *testing.T) {
	t.Parallel()
	pod := func(fields string) string { return `{image: a, template: {spec: {` + fields + `}}}` }
	egress := func(rule string) string { return `{image: a, network: {egress: [{` + rule + `}]}}` }
	assertSpecsRefused(t, "SessionRunner", []invalidSpec{
		{"credentials of git for no repositories", `{image: a, git: {secretRef: {name: b}}}`, "repositories: secretRef and repositories"},
		{"repositories of git without credentials", `{image: a, git: {repositories: ["github.com/acme/*"]}}`, "repositories: secretRef and repositories"},
		{"more sessions of a user than in all", `{image: a, limits: {maxSessions: 2, maxSessionsPerUser: 3}}`, "maxSessionsPerUser must not be greater"},
		{"a cost of 0", `{image: a, limits: {maxCostUSD: 0}}`, "spec.limits.maxCostUSD: maxCostUSD must be from 0.000001 to 1000000000"},
		{"a cost of 1000000001", `{image: a, limits: {maxCostUSD: 1000000001}}`, "spec.limits.maxCostUSD: maxCostUSD must be from 0.000001 to 1000000000"},
		{"an allowed Secret whose name is a path", `{image: a, allowed: {secrets: [{name: a/b}]}}`, `spec.allowed.secrets[0].name: should match`},
		{"an allowed Secret without keys in an empty list", `{image: a, allowed: {secrets: [{name: a, keys: []}]}}`, "keys: should have at least 1 items"},
		{"a key that is a path", `{image: a, allowed: {secrets: [{name: a, keys: [../b]}]}}`, `spec.allowed.secrets[0].keys[0]: should match`},
		{"an allowed ConfigMap without keys", `{image: a, allowed: {configMaps: [{name: a}]}}`, "allowed.configMaps: list the keys that sessions may use"},
		{"activityLease with a ServiceAccount", `{image: a, activityLease: true, template: {spec: {serviceAccountName: b}}}`, "activityLease needs a"},
		{"inactivityTimeout without activityLease", `{image: a, limits: {inactivityTimeout: 1h}}`, "inactivityTimeout requires activityLease"},
		{"a token without an audience", pod(`volumes: [{name: t, projected: {sources: [{serviceAccountToken: {path: b}}]}}]`), "a projected volume has"},
		{"a projected volume with a Secret", pod(`volumes: [{name: t, projected: {sources: [{secret: {name: b}}]}}]`), `projected.sources[0].secret"`},
		{"a volume of the node", pod(`volumes: [{name: node, hostPath: {path: /}}]`), `unknown field "spec.template.spec.volumes[0].hostPath"`},
		{"a volume without a source", pod(`volumes: [{name: node}]`), "volumes: set exactly one of configMap, secret, persistentVolumeClaim and"},
		{"the network of the node", pod(`hostNetwork: true`), `unknown field "spec.template.spec.hostNetwork"`},
		{"another container", pod(`containers: [{name: other}]`), "containers: the only container is named runner"},
		{"an init container that ends", pod(`initContainers: [{name: prepare, image: b}]`), "initContainers: each of the initContainers is a sidecar"},
		{"no image", `{}`, "spec.image: Required value"},
		{"an environment variable with a reserved prefix", pod(`containers: [{name: runner, env: [{name: AGENTIC_A}]}]`), "names of variables"},
		{"runAsGroup root", pod(`securityContext: {runAsGroup: 0}`), "securityContext: runAsUser and runAsGroup must be from 1"},
		{"runAsUser root", pod(`securityContext: {runAsUser: 0}`), "securityContext: runAsUser and runAsGroup must be from 1"},
		{"a privileged port", `{image: a, network: {port: 80}}`, "spec.network.port: should be greater than or equal to 1024"},
		{"two sidecars with the same name", pod(`initContainers: [{name: a, image: b}, {name: a, image: b}]`), "initContainers[1]: Duplicate value"},
		{"a sidecar with a securityContext", pod(`initContainers: [{name: a, securityContext: {privileged: true}}]`), `initContainers[0].securityContext"`},
		{"egress to a host name", egress(`to: {ipBlock: {cidr: example.com}}, ports: [{port: 443}]`), "ipBlock: cidr and except must be networks"},
		{"egress without ports", egress(`to: {ipBlock: {cidr: 10.0.0.0/8}}, ports: []`), "egress[0].ports: should have at least 1 items"},
		{"an invalid network in except", egress(`to: {ipBlock: {cidr: 10.0.0.0/8, except: [b]}}, ports: [{port: 443}]`), "ipBlock: cidr and except must"},
		{"endPort below port", egress(`to: {ipBlock: {cidr: 10.0.0.0/8}}, ports: [{port: 443, endPort: 80}]`), "ports: each port must be a number from"},
		{"an access mode that does not allow writing", `{image: a, workspace: {accessMode: ReadOnlyMany}}`, "accessMode: Unsupported value"},
		{"hosts and a network", egress(`hosts: [api.example.com], to: {ipBlock: {cidr: 10.0.0.0/8}}`), "egress[0]: set exactly one of to, profile"},
		{"hosts and ports", egress(`hosts: [api.example.com], ports: [{port: 443}]`), "egress[0].ports: set ports, or hosts with their ports"},
		{"an address as a host", egress(`hosts: [10.0.0.1]`), "hosts[0]: should match"},
		{"a host in upper case", egress(`hosts: [API.example.com]`), "hosts[0]: should match"},
		{"a port that does not exist", egress(`hosts: ["api.example.com:65536"]`), "hosts[0]: should match"},
		{"no hosts", egress(`hosts: []`), "hosts: should have at least 1 items"},
		{"maxWorkspaceSize of 0", `{image: a, limits: {maxWorkspaceSize: "0"}}`, "maxWorkspaceSize: maxWorkspaceSize must be greater than zero"},
	})
}

func TestValidAgenticSessionsAreAccepted(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	strict := strictClient(t, &warningList{})
	for name, spec := range map[string]string{
		"longest-prompt": `{prompt: "` + strings.Repeat("é", 32768) + `"}`,
		"interactive":    `{interactive: true}`,
		"workflow":       `{agent: {workflow: {url: "https://a/b", path: c/d}}}`,
		"no-timeout":     `{prompt: a, limits: {timeout: 0s, inactivityTimeout: 720h}}`,
		"all-fields": `{runner: default, prompt: a, displayName: d, userContext: {userID: u}, interactive: true,
			repos: [{url: "https://a/b.git", branch: feature/x, autoPush: true}, {url: "git@a.b:c/d.git", name: e}, {url: "ssh://git@a:22/f"}],
			workspace: {size: 1Gi, retention: Retain, onLost: Recreate}, environmentVariables: {RUNNER_TYPE: x},
			agent: {model: m, maxTokens: 4000, workflow: {url: "https://a/w", branch: main, path: ""},
				mcpServers: {custom: {a: {type: http, url: "http://b", headers: {c: d}}}, disabled: [e]}},
			limits: {timeout: 5m, maxCostUSD: 2, inactivityTimeout: 60s, startupTimeout: 0s},
			retry: {limit: 5, backoff: 1m, maxBackoff: 1h, factor: 3, onDisruption: true}, stopOnRunFinished: true}`,
		"ambient": `{prompt: Explain the tests, interactive: true, displayName: Tests, stopOnRunFinished: true,
			repos: [{url: "https://git.example/shop.git", branch: main, autoPush: true}], environmentVariables: {LEVEL: debug}}`,
		strings.Repeat("a", 52): `{prompt: a}`,
	} {
		object := newManifest(t, "AgenticSession", ns, name, spec)
		wantAllowed(t, name, apply(t.Context(), strict, object, false))
	}
}

var updateBadInput = flag.Bool("update", false, "record the messages of the cluster instead of comparing them")

var (
	badInputFiles = filepath.Join(repositoryRoot, "test", "badinput")
	badInputPage  = filepath.Join(repositoryRoot, "docs", "reference", "sequentialjob-errors.md")
)

// badInput is a file in test/badinput: comments with a title and the expected message, then a
// manifest, and a second manifest if the error is in an update of the first.
type badInput struct {
	file  string
	title string
	when  string // the phase in which the manifest is updated
	// from is the source of the message.
	from, message string
	manifests     []*unstructured.Unstructured
	body          []byte
}

// The sources of messages.
const (
	fromDecoding  = "strict decoding"
	fromSchema    = "schema"
	fromRule      = "CEL rule"
	fromWebhook   = "webhook"
	fromWarning   = "warning"
	fromCondition = "condition"
	fromNobody    = "none"
)

// Each invalid manifest gets the recorded message and does not affect other objects.
func TestBadInput(t *testing.T) {
	inputs, rules, shared := readBadInputs(t), ruleMessages(t), namespace(t)
	t.Run("files", func(t *testing.T) {
		for _, input := range inputs {
			t.Run(input.title, func(t *testing.T) {
				t.Parallel()
				ns := shared
				atOnce := []string{fromDecoding, fromSchema, fromRule, fromWebhook}
				if len(input.manifests) > 1 || !slices.Contains(atOnce, input.from) { // the API server stores an object
					ns = namespace(t)
				}
				input.try(t, rules, ns)
			})
		}
	})
	comparePage(t, inputs)

	good := &v1alpha1.SequentialJob{ObjectMeta: metav1.ObjectMeta{Name: "good", Namespace: shared}}
	good.Spec.Containers = []v1alpha1.Step{{Name: "build"}}
	good.Spec.Containers[0].Image = "registry.example/tool:1"
	mustCreate(t, good)
	waitForPhase(t, client.ObjectKeyFromObject(good), string(v1alpha1.PhaseCompleted))
}

// Without a webhook, a condition has the same message as the webhook.
func TestBadInputWithoutAWebhook(t *testing.T) {
	for _, input := range readBadInputs(t) {
		if input.from != fromWebhook {
			continue
		}
		t.Run(input.title, func(t *testing.T) {
			t.Parallel()
			from, message := input.observe(t, nil, namespaceWithoutWebhook(t))
			_, text, _ := strings.Cut(message, ": ")
			require.True(t, from == fromCondition && text != "" && strings.HasSuffix(input.message, text),
				"the webhook's message is %q, and that of the %s is %q", input.message, from, message)
		})
	}
}

func (b *badInput) try(t *testing.T, rules []string, ns string) {
	from, message := b.observe(t, rules, ns)
	if *updateBadInput {
		b.from, b.message = from, message
		b.write(t)
		return
	}
	want := "from: " + b.from + "\nmessage: " + b.message
	diff := cmp.Diff(comparableMessage(t, want), comparableMessage(t, "from: "+from+"\nmessage: "+message))
	require.True(t, diff == "", "%s (-want, +got):\n%s", b.file, diff)
}

// observe applies the input and returns the source and the text of the message.
func (b *badInput) observe(t *testing.T, rules []string, ns string) (from, message string) {
	warnings := &warningList{}
	strict := strictClient(t, warnings)
	last := len(b.manifests) - 1
	for i, manifest := range b.manifests {
		object := manifest.DeepCopy()
		object.SetNamespace(ns)
		err := apply(t.Context(), strict, object, i > 0)
		switch {
		case err != nil && i < last:
			t.Fatalf("%s: the first manifest is rejected: %v", b.file, err)
		case err != nil:
			return sourceOf(err, rules), normalizeMessage(messageOf(err))
		case len(warnings.all) > 0:
			return fromWarning, strings.Join(slices.Compact(warnings.all), "; ") // one warning for each attempt
		case i < last && b.when != "":
			waitForPhase(t, client.ObjectKeyFromObject(object), b.when)
		}
	}
	return observeCondition(t, client.ObjectKey{Namespace: ns, Name: b.manifests[last].GetName()})
}

// apply creates or replaces the object with strict field validation, as kubectl does.
func apply(ctx context.Context, strict client.Client, object *unstructured.Unstructured, replace bool) error {
	if !replace {
		return strict.Create(ctx, object)
	}
	for {
		current := &unstructured.Unstructured{}
		current.SetGroupVersionKind(object.GroupVersionKind())
		if err := strict.Get(ctx, client.ObjectKeyFromObject(object), current); err != nil {
			return err
		}
		object.SetResourceVersion(current.GetResourceVersion())
		object.SetFinalizers(current.GetFinalizers())
		if err := strict.Update(ctx, object); !apierrors.IsConflict(err) {
			return err
		}
	}
}

func observeCondition(t *testing.T, key client.ObjectKey) (from, message string) {
	sj := &v1alpha1.SequentialJob{}
	poll.Until(t, "the operator to observe "+key.String(), func() bool {
		return cluster.Get(t.Context(), key, sj) == nil && sj.Status.ObservedGeneration == sj.Generation
	})
	if c := meta.FindStatusCondition(sj.Status.Conditions, v1alpha1.ConditionSpecAccepted); c != nil && c.Status == metav1.ConditionFalse {
		return fromCondition, normalizeMessage(fmt.Sprintf("SpecAccepted=False/%s: %s", c.Reason, c.Message))
	}
	return fromNobody, "phase " + string(sj.Status.Phase)
}

func waitForPhase(t *testing.T, key client.ObjectKey, phase string) {
	t.Helper()
	sj := &v1alpha1.SequentialJob{}
	poll.Until(t, "phase "+phase+" of "+key.String()+", whose first step has started", func() bool {
		return cluster.Get(t.Context(), key, sj) == nil && string(sj.Status.Phase) == phase &&
			len(sj.Status.Steps) > 0 && sj.Status.Steps[0].Phase != v1alpha1.StepPending
	})
}

func sourceOf(err error, rules []string) string {
	message := err.Error()
	contains := func(rule string) bool { return strings.Contains(message, rule) }
	switch {
	case strings.Contains(message, "strict decoding error"):
		return fromDecoding
	case strings.Contains(message, "admission webhook"):
		return fromWebhook
	case slices.ContainsFunc(rules, contains):
		return fromRule
	default:
		return fromSchema
	}
}

func messageOf(err error) string {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return status.Status().Message
	}
	return err.Error()
}

var (
	nameHashes      = regexp.MustCompile(`-[0-9a-f]{10}\b`)
	uncheckedRemark = regexp.MustCompile(`\[(.*), <nil>: Invalid value: "?null"?: some validation rules were not checked [^]]*\]`)
)

// normalizeMessage removes from a message what differs between test runs, and the remark that some rules were not checked.
func normalizeMessage(message string) string {
	return nameHashes.ReplaceAllString(uncheckedRemark.ReplaceAllString(message, "$1"), "-<hash>")
}

type warningList struct{ all []string }

var _ rest.WarningHandler = &warningList{}

// HandleWarningHeader is called for each warning.
func (w *warningList) HandleWarningHeader(code int, _, text string) {
	if code == 299 {
		w.all = append(w.all, text)
	}
}

func strictClient(t *testing.T, warnings *warningList) client.Client {
	t.Helper()
	own := rest.CopyConfig(config)
	own.WarningHandler = warnings
	return client.WithFieldValidation(newClient(t, own), client.FieldValidation(metav1.FieldValidationStrict))
}

func ruleMessages(t *testing.T) []string {
	raw, err := os.ReadFile(filepath.Join(repositoryRoot, "config", "crd", "bases", "yardmaster.dev_sequentialjobs.yaml"))
	require.NoError(t, err)
	var crd map[string]any
	require.NoError(t, yaml.Unmarshal(raw, &crd))
	return collectRules(crd)
}

func collectRules(node any) []string {
	var messages []string
	switch node := node.(type) {
	case map[string]any:
		if message, isText := node["message"].(string); isText && node["rule"] != nil {
			messages = append(messages, message)
		}
		for _, child := range node {
			messages = append(messages, collectRules(child)...)
		}
	case []any:
		for _, child := range node {
			messages = append(messages, collectRules(child)...)
		}
	}
	return messages
}

func readBadInputs(t *testing.T) []*badInput {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(badInputFiles, "*.yaml"))
	require.True(t, err == nil && len(files) != 0, "no bad input found: %v", err)
	inputs := make([]*badInput, 0, len(files))
	for _, file := range files {
		inputs = append(inputs, readBadInput(t, file))
	}
	return inputs
}

func readBadInput(t *testing.T, file string) *badInput {
	t.Helper()
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	b := &badInput{file: file}
	for bytes.HasPrefix(raw, []byte("# ")) {
		var line []byte
		line, raw, _ = bytes.Cut(raw, []byte("\n"))
		b.readComment(string(line[2:]))
	}
	b.body = raw
	for document := range bytes.SplitSeq(raw, []byte("\n---\n")) {
		manifest, err := decode(document)
		require.True(t, err == nil, "%s: %v", file, err)
		b.manifests = append(b.manifests, manifest)
	}
	return b
}

func (b *badInput) readComment(text string) {
	key, value, _ := strings.Cut(text, ": ")
	switch {
	case b.title == "":
		b.title = text
	case key == "when":
		b.when = value
	case key == "from":
		b.from = value
	case key == "message":
		b.message = value
	}
}

func decode(document []byte) (*unstructured.Unstructured, error) {
	raw, err := yaml.YAMLToJSON(document)
	if err != nil {
		return nil, err
	}
	manifest := &unstructured.Unstructured{}
	if err := manifest.UnmarshalJSON(raw); err != nil {
		return nil, err
	}
	return manifest, nil
}

func (b *badInput) write(t *testing.T) {
	t.Helper()
	var text strings.Builder
	fmt.Fprintf(&text, "# %s\n", b.title)
	if b.when != "" {
		fmt.Fprintf(&text, "# when: %s\n", b.when)
	}
	fmt.Fprintf(&text, "# from: %s\n# message: %s\n", b.from, b.message)
	text.Write(b.body)
	require.NoError(t, os.WriteFile(b.file, []byte(text.String()), 0o600))
}

func comparePage(t *testing.T, inputs []*badInput) {
	page := badInputTable(inputs)
	if *updateBadInput {
		require.NoError(t, os.WriteFile(badInputPage, []byte(page), 0o600))
		return
	}
	recorded, err := os.ReadFile(badInputPage)
	require.NoError(t, err)
	diff := cmp.Diff(string(recorded), page)
	require.True(t, diff == "", "%s is out of date; run this test with -update (-recorded, +new):\n%s", badInputPage, diff)
}

func badInputTable(inputs []*badInput) string {
	var page strings.Builder
	page.WriteString(badInputIntroduction)
	for _, section := range badInputSections {
		fmt.Fprintf(&page, "\n## %s\n\n%s\n\n| Error | Message |\n|---|---|\n", section.title, section.text)
		for _, input := range inputs {
			if input.from == section.from {
				fmt.Fprintf(&page, "| [%s](../../test/badinput/%s) | %s |\n", input.title, filepath.Base(input.file), formatCodeCell(input.message))
			}
		}
	}
	return page.String()
}

func formatCodeCell(text string) string {
	text = strings.ReplaceAll(text, "|", `\|`)
	if strings.Contains(text, "`") {
		return "`` " + text + " ``"
	}
	return "`" + text + "`"
}

const badInputIntroduction = `<!-- Generated from test/badinput by test/integration; do not edit. -->
# Error messages of SequentialJobs

Each message was produced by a real API server. kubectl prints
` + "`Error from server (BadRequest): error when creating …`" + ` before a message, or shortens
its beginning to ` + "`The SequentialJob \"demo\" is invalid:`" + `. The server may add that ` + "`some validation rules were not checked`" + `.
`

var badInputSections = []struct{ from, title, text string }{
	{fromDecoding, "Fields that do not exist", "The API server refuses them because kubectl requests strict validation (`--validate=strict`, its default). Other clients get a warning, and the field is dropped."},
	{fromSchema, "Invalid values", "The API server refuses them, usually by the schema in the CustomResourceDefinition."},
	{fromRule, "Invalid combinations of fields", "The API server refuses them by the rules in the CustomResourceDefinition."},
	{fromWebhook, "Errors that depend on other fields or on the state", "The operator's webhook refuses them. Without a webhook, the condition `SpecAccepted` has the same message."},
	{fromCondition, "Errors that Kubernetes' validation of Jobs finds", "Before the first step, the operator creates the Jobs of all steps in a dry run. The SequentialJob fails without running anything."},
	{fromWarning, "Warnings", "The webhook accepts them with a warning."},
	{fromNobody, "Accepted", "These manifests are valid."},
}

// TestClassesOfErrorsOfTheAPIServer provokes each error whose class only its message shows. A row is repeated until the API server
// answers with the message: quotas, policies and other configuration take effect with a delay.
func TestClassesOfErrorsOfTheAPIServer(t *testing.T) {
	t.Parallel()
	for title, test := range map[string]struct {
		// provoke prepares the namespace, and returns a request that the API server refuses there.
		provoke func(t *testing.T, ns string) func() error
		message string
		want    decision.Class
	}{
		"exceeded quota":                   {provoke(configMap, quota(`count/configmaps: "0"`)), "exceeded quota: ", decision.QuotaExceeded},
		"quota whose usage is not counted": {provokeUncountedQuota, "status unknown for quota: ", decision.QuotaExceeded},
		"quota on an unset resource":       {provoke(pod(""), quota(`limits.cpu: "4"`)), "failed quota: ", decision.QuotaExceeded},
		"PodSecurity":                      {provokePodSecurity, "is forbidden: violates PodSecurity ", decision.PolicyDenied},
		"LimitRange with a minimum":        {provokeLimitRange(`min: {cpu: "2"}`), "is forbidden: minimum cpu ", decision.PolicyDenied},
		"LimitRange with a maximum":        {provokeLimitRange(`max: {cpu: 100m}`), "is forbidden: maximum cpu ", decision.PolicyDenied},
		"LimitRange with a ratio": {
			provokeLimitRange(`maxLimitRequestRatio: {cpu: "1"}`), "is forbidden: cpu max limit to request ratio ", decision.PolicyDenied,
		},
		"LimitRange with two violations":   {provokeLimitRange(`max: {cpu: 100m, memory: 1Mi}`), "is forbidden: [maximum ", decision.PolicyDenied},
		"RuntimeClass that does not exist": {provoke(pod("runtimeClassName: none, ")), "is forbidden: pod rejected: RuntimeClass", decision.PolicyDenied},
		"RuntimeClass for other nodes": {
			provoke(pod(`runtimeClassName: $NS, nodeSelector: {sandbox: "false"}, `), runtimeClass),
			"is forbidden: conflict: runtimeClass.", decision.PolicyDenied,
		},
		"PriorityClass that does not exist": {
			provoke(pod("priorityClassName: none, ")), "is forbidden: no PriorityClass with name ", decision.PolicyDenied,
		},
		"service account that doesn't exist": {
			provoke(pod("serviceAccountName: none, ")), "is forbidden: error looking up service account ", decision.ServiceAccountMissing,
		},
		"policy that denies by default": {
			provoke(configMap, policy(`validations: [{expression: "false"}]`), binding("")), "ValidatingAdmissionPolicy '", decision.PolicyDenied,
		},
		"policy without its parameters": {
			provoke(configMap, policy(`validations: [{expression: "true"}], paramKind: {apiVersion: v1, kind: ConfigMap}`),
				binding(`, paramRef: {name: none, namespace: default, parameterNotFoundAction: Deny}`)),
			"denied request: failed to configure binding", decision.PolicyDenied,
		},
		"webhook that denies without a reason": {provokeWebhook(metav1.Status{}), "denied the request", decision.PolicyDenied},
		"webhook that denies as Conflict": {
			provokeWebhook(metav1.Status{Reason: metav1.StatusReasonConflict, Code: http.StatusConflict, Message: "as requested"}),
			"denied the request: as requested", decision.PolicyDenied,
		},
		"webhook that cannot be called": {provoke(configMap, webhookAt("https://127.0.0.1:1", nil)), "failed calling webhook", decision.Unavailable},

		"grant escalation":                     {provokeEscalation, `is forbidden: user "jane" (groups=`, decision.PermissionMissing},
		"terminating namespace":                {provokeTerminatingNamespace, "because it is being terminated", decision.NamespaceTerminating},
		"RuntimeClass with an invalid name":    {provoke(pod("runtimeClassName: a/b, ")), `invalid resource name "a/b"`, decision.Invalid},
		"service account with an invalid name": {provoke(pod("serviceAccountName: a/b, ")), `invalid resource name "a/b"`, decision.Invalid},
		"undeclared field":                     {provokeUndeclaredField, "field not declared in schema", decision.Invalid},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			attempt := test.provoke(t, namespace(t))
			var last error
			require.NoError(t, poll.UntilNil(t.Context(), func() error {
				if last = attempt(); last == nil || !strings.Contains(last.Error(), test.message) {
					return fmt.Errorf("want an error with %q, got: %w", test.message, last)
				}
				return nil
			}))
			require.Equal(t, test.want, decision.ClassOf(last))
		})
	}
}

// Objects whose namespace or unique name is $NS.
const (
	configMap    = `{apiVersion: v1, kind: ConfigMap, metadata: {namespace: $NS, name: a}}`
	runtimeClass = `{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: $NS}, handler: a, scheduling: {nodeSelector: {sandbox: "true"}}}`
	// ofConfigMaps are fields of a policy or a webhook for the ConfigMaps of the namespace.
	ofConfigMaps = `namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: $NS}},
		%s: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [configmaps]}]`
)

func pod(fields string) string {
	return `{apiVersion: v1, kind: Pod, metadata: {namespace: $NS, name: a}, spec: {` + fields + `containers: [{name: main, image: "busybox:1.37",
		resources: $RESOURCES}]}}`
}

func quota(hard string) string {
	return `{apiVersion: v1, kind: ResourceQuota, metadata: {namespace: $NS, name: quota}, spec: {hard: {` + hard + `}}}`
}

func policy(spec string) string {
	return `{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {name: $NS}, spec: {` + spec + `,
		matchConstraints: {` + fmt.Sprintf(ofConfigMaps, "resourceRules") + `}}}`
}

func binding(more string) string {
	return `{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, metadata: {name: $NS},
		spec: {policyName: $NS, validationActions: [Deny]` + more + `}}`
}

func webhookAt(url string, authority []byte) string {
	return `{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: $NS}, webhooks: [{
		name: test.yardmaster.dev, sideEffects: None, admissionReviewVersions: [v1], timeoutSeconds: 5,
		clientConfig: {url: "` + url + `", caBundle: "` + base64.StdEncoding.EncodeToString(authority) + `"}, ` + fmt.Sprintf(ofConfigMaps, "rules") + `}]}`
}

func objectOf(t *testing.T, manifest, ns string) *unstructured.Unstructured {
	t.Helper()
	object, err := decode([]byte(strings.ReplaceAll(strings.ReplaceAll(manifest, "$NS", ns), "$RESOURCES", "{}")))
	require.NoError(t, err)
	return object
}

// provoke creates objects, and returns a request that submits another one to admission without storing it.
func provoke(manifest string, before ...string) func(*testing.T, string) func() error {
	return func(t *testing.T, ns string) func() error {
		for _, other := range before {
			mustCreate(t, objectOf(t, other, ns))
		}
		object := objectOf(t, manifest, ns)
		return func() error { return cluster.Create(t.Context(), object.DeepCopy(), client.DryRunAll) }
	}
}

// provokeUncountedQuota removes the usage from a quota's status, as it is before the quota's
// controller has counted for the first time.
func provokeUncountedQuota(t *testing.T, ns string) func() error {
	create, counted := provoke(configMap, quota(`count/configmaps: "100"`))(t, ns), &corev1.ResourceQuota{}
	return func() error {
		if err := cluster.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "quota"}, counted); err != nil {
			return err
		}
		counted.Status.Hard, counted.Status.Used = counted.Spec.Hard, nil
		if err := cluster.Status().Update(t.Context(), counted); err != nil {
			return err
		}
		return create()
	}
}

func provokePodSecurity(t *testing.T, ns string) func() error {
	labels := client.RawPatch(mergePatch, []byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`))
	mustPatch(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, labels)
	return provoke(pod(""))(t, ns)
}

func provokeLimitRange(limit string) func(*testing.T, string) func() error {
	const resources = `{requests: {cpu: 500m, memory: 1Gi}, limits: {cpu: "1", memory: 1Gi}}`
	return provoke(strings.Replace(pod(""), "$RESOURCES", resources, 1),
		`{apiVersion: v1, kind: LimitRange, metadata: {namespace: $NS, name: a}, spec: {limits: [{type: Container, `+limit+`}]}}`)
}

func provokeWebhook(denial metav1.Status) func(*testing.T, string) func() error {
	return func(t *testing.T, ns string) func() error {
		server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
			review := &admissionv1.AdmissionReview{}
			if err := json.NewDecoder(request.Body).Decode(review); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Result: &denial}
			_ = json.NewEncoder(w).Encode(review)
		}))
		t.Cleanup(server.Close)
		authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
		return provoke(configMap, webhookAt(server.URL, authority))(t, ns)
	}
}

func newClient(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	c, err := client.New(config, client.Options{Scheme: cluster.Scheme(), Mapper: cluster.RESTMapper()})
	require.NoError(t, err)
	return c
}

func provokeEscalation(t *testing.T, ns string) func() error {
	role := func(name, rule string) string {
		return `{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {namespace: $NS, name: ` + name + `}, rules: [` + rule + `]}`
	}
	mustCreate(t, objectOf(t, role("jane", `{apiGroups: [rbac.authorization.k8s.io], resources: [roles], verbs: [create]}`), ns))
	mustCreate(t, objectOf(t, `{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {namespace: $NS, name: jane},
		roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: jane},
		subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: jane}]}`, ns))
	jane, more := impersonate(t, "jane"), objectOf(t, role("more", `{apiGroups: [""], resources: [secrets], verbs: [get]}`), ns)
	return func() error { return jane.Create(t.Context(), more.DeepCopy(), client.DryRunAll) }
}

func provokeTerminatingNamespace(t *testing.T, ns string) func() error {
	blocker := objectOf(t, configMap, ns)
	blocker.SetFinalizers([]string{"test.yardmaster.dev/blocker"})
	mustCreate(t, blocker)
	t.Cleanup(func() {
		require.NoError(t, cluster.Patch(context.Background(), blocker, client.RawPatch(mergePatch, []byte(`{"metadata":{"finalizers":null}}`))))
	})
	mustDelete(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
	return provoke(strings.Replace(configMap, "name: a", "name: other", 1))(t, ns)
}

// provokeUndeclaredField applies a field that the API server does not know, as a client of a later version
// of Kubernetes does.
func provokeUndeclaredField(t *testing.T, ns string) func() error {
	return func() error {
		object := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"namespace": ns, "name": "a"}, "unknown": true,
		}}
		return cluster.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("test"))
	}
}
