package integration

import (
	"strings"
	"testing"
)

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
