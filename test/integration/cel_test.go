package integration

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/require"
)

// newManifest returns a manifest of the kind with that spec in YAML.
func newManifest(t *testing.T, kind, ns, name, spec string) *unstructured.Unstructured {
	t.Helper()
	text := fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {namespace: %q, name: %q}\nspec: %s\n", v1alpha1.GroupVersion, kind, ns, name, spec)
	manifest, err := decode([]byte(text))
	require.True(t, err == nil, "%s: %v", text, err)
	return manifest
}

// invalidSpec is a spec that the API server refuses with this error, or a change of a spec, with "=>" between both.
type invalidSpec struct{ title, spec, want string }

// assertSpecsRefused applies each spec and compares the error of the API server.
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
	if says := aboutValue.ReplaceAllString(messageOf(err), ""); !strings.Contains(says, want) {
		t.Errorf("the error is %q, want %q", says, want)
	}
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

func TestStorageOfAQueueCanChangeExceptItsType(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	for i, spec := range []string{
		`{}`, `{storage: {}}`, `{storage: {type: File}}`, `{storage: {replicas: 3}}`,
		`{storage: {replicas: 5, placement: {cluster: eu, tags: ["disk:fast", "!old"]}}}`, `{storage: {replicas: 1, placement: {}}}`, `{}`,
	} {
		object := newManifest(t, "Queue", ns, "mail", spec)
		wantAllowed(t, spec, apply(t.Context(), strictClient(t, &warningList{}), object, i > 0))
	}
}

func TestDefaultsOfFields(t *testing.T) {
	t.Parallel()
	ns := namespaceWithoutWebhook(t)
	for kind, row := range map[string]struct{ spec, want string }{
		"Queue": {"", `{priorities: [{name: default, weight: 1}], lease: 30s, deletionPolicy: Retain, drift: Correct}`}, // an object without spec
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
		object, want := newManifest(t, kind, ns, "demo", cmp.Or(row.spec, "{}")), newManifest(t, kind, ns, "demo", row.want)
		if row.spec == "" {
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
	pool := &v1alpha1.WorkerPool{}
	mustGet(t, client.ObjectKey{Namespace: ns, Name: "manual"}, pool)
	require.True(t, pool.Spec.Replicas != nil && *pool.Spec.Replicas == 5, "the pool has %v replicas, want 5", pool.Spec.Replicas)
	err := scaleTo("scaled", `{queues: [{name: mail}], image: a, autoscaling: {maxReplicas: 3}}`)
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "to influence an autoscaled pool, change autoscaling.minReplicas") {
		t.Errorf("the scale subresource of an autoscaled pool returns %v", err)
	}
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
	})
}

// egress returns a SessionRunner with a rule for its egress.
func egress(rule string) string { return `{image: a, network: {egress: [{` + rule + `}]}}` }

func TestSessionRunnerRules(t *testing.T) {
	t.Parallel()
	pod := func(fields string) string { return `{image: a, template: {spec: {` + fields + `}}}` }
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

// Each manifest has a form of the ambient-code platform. docs/agenticsession.md lists what has to be changed.
func TestManifestsOfTheAmbientCodePlatform(t *testing.T) {
	t.Parallel()
	assertSpecsRefused(t, "AgenticSession", []invalidSpec{
		{"a userId", `{prompt: a, userContext: {userId: jane}}`, `unknown field "spec.userContext.userId"`},
		{"no prompt", `{displayName: Chat}`, "prompt is required"},
		{"an input", `{prompt: a, repos: [{input: {url: "https://a/b.git", branch: main}}]}`, `unknown field "spec.repos[0].input"`},
		{"an output", `{prompt: a, repos: [{url: "https://a/b.git", output: {url: "https://a/c.git"}}]}`, `unknown field "spec.repos[0].output"`},
	})
}
