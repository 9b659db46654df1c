package integration

import (
	"strings"
	"testing"
)

func TestAgenticSessionRules(t *testing.T) {
	t.Parallel()
	assertSpecsRefused(t, "AgenticSession", map[string]invalidSpec{
		"a cost of 0":          {spec: `{prompt: a, limits: {maxCostUSD: 0}}`, want: "spec.limits.maxCostUSD: Invalid value: 0: maxCostUSD must be from 0.000001 to 1000000000"},
		"a cost of 1000000001": {spec: `{prompt: a, limits: {maxCostUSD: 1000000001}}`, want: "spec.limits.maxCostUSD: Invalid value: 1000000001: maxCostUSD must be from 0.000001 to 1000000000"},
		"a name longer than 52 characters": {
			name: strings.Repeat("a", 53), spec: `{prompt: a}`,
			want: "<nil>: Invalid value: metadata.name must begin with a letter and have at most 52 lower-case letters, digits and dashes",
		},
		"a name that begins with a digit": {
			name: "1a", spec: `{prompt: a}`,
			want: "<nil>: Invalid value: metadata.name must begin with a letter and have at most 52 lower-case letters, digits and dashes",
		},
		"no prompt":       {spec: `{}`, want: "spec.prompt: Required value: prompt is required, unless the session is interactive or has an agent.workflow"},
		"an empty prompt": {spec: `{prompt: ""}`, want: `spec.prompt: Invalid value: "": spec.prompt in body should be at least 1 chars long`},
		"a prompt of more than 64 KiB": {
			spec: `{prompt: "` + strings.Repeat("é", 32769) + `"}`,
			want: `spec.prompt: Invalid value: "` + strings.Repeat("é", 32769) + `": prompt must not have more than 65536 bytes`,
		},
		"a changed prompt":             {spec: `{prompt: a}`, changedTo: `{prompt: b}`, want: "spec.prompt: Invalid value: prompt is immutable"},
		"a changed userContext":        {spec: `{prompt: a}`, changedTo: `{prompt: a, userContext: {userID: mallory}}`, want: "spec.userContext: Invalid value: userContext is immutable"},
		"interactive changed to false": {spec: `{prompt: a, interactive: true}`, changedTo: `{prompt: a}`, want: "spec.interactive: Invalid value: false: interactive is immutable"},
		"a duplicate repo":             {spec: `{prompt: a, repos: [{url: "https://a/b"}, {url: "https://a/b", branch: c}]}`, want: `spec.repos[1]: Duplicate value: {"url":"https://a/b"}`},
		"two repos with the same name": {
			spec: `{prompt: a, repos: [{url: "https://a/b", name: x}, {url: "https://a/c", name: x}]}`,
			want: "spec.repos: Invalid value: names of repos must be unique",
		},
		"a repo without a URL":    {spec: `{prompt: a, repos: [{name: x}]}`, want: "spec.repos[0].url: Required value"},
		"a repo with an http URL": {spec: `{prompt: a, repos: [{url: "http://a/b"}]}`, want: `spec.repos[0].url: Invalid value: "http://a/b": the URL must be https://, ssh:// or git@host:path`},
		"a repo URL with a git remote helper": {
			spec: `{prompt: a, repos: [{url: "ext::sh -c id"}]}`,
			want: `spec.repos[0].url: Invalid value: "ext::sh -c id": the URL must be https://, ssh:// or git@host:path`,
		},
		"a repo URL that is a command-line option": {
			spec: `{prompt: a, repos: [{url: "--upload-pack=id"}]}`,
			want: `spec.repos[0].url: Invalid value: "--upload-pack=id": the URL must be https://, ssh:// or git@host:path`,
		},
		"a token in a repo URL": {
			spec: `{prompt: a, repos: [{url: "https://token@a/b"}]}`,
			want: `spec.repos[0].url: Invalid value: "https://token@a/b": the URL must not contain credentials: put them into a Secret, and mount it with secretMounts`,
		},
		"a password in an ssh URL": {
			spec: `{prompt: a, repos: [{url: "ssh://git:secret@a/b"}]}`,
			want: `spec.repos[0].url: Invalid value: "ssh://git:secret@a/b": the URL must not contain credentials: put them into a Secret, and mount it with secretMounts`,
		},
		"a branch that is a command-line option": {
			spec: `{prompt: a, repos: [{url: "https://a/b", branch: "--force"}]}`,
			want: `spec.repos[0].branch: Invalid value: "--force": spec.repos[0].branch in body should match '^[A-Za-z0-9_][A-Za-z0-9._/+@#-]*$'`,
		},
		"a repo name with a path to a parent directory": {
			spec: `{prompt: a, repos: [{url: "https://a/b", name: "../x"}]}`,
			want: `spec.repos[0].name: Invalid value: "../x": spec.repos[0].name in body should match '^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$'`,
		},
		"an environment variable with a dash": {
			spec: `{prompt: a, environmentVariables: {A-B: c}}`,
			want: "spec.environmentVariables: Invalid value: names of environment variables must be C identifiers of at most 128 characters",
		},
		"an environment variable with a reserved prefix": {
			spec: `{prompt: a, environmentVariables: {AGENTIC_RUN: "7"}}`,
			want: "spec.environmentVariables: Invalid value: names that begin with AGENTIC_, YARDMASTER_, KUBERNETES_ or LD_, and PATH, HOME and TMPDIR, are reserved",
		},
		"the environment variable LD_PRELOAD": {
			spec: `{prompt: a, environmentVariables: {LD_PRELOAD: /workspace/x.so}}`,
			want: "spec.environmentVariables: Invalid value: names that begin with AGENTIC_, YARDMASTER_, KUBERNETES_ or LD_, and PATH, HOME and TMPDIR, are reserved",
		},
		"the environment variable PATH": {
			spec: `{prompt: a, environmentVariables: {PATH: /workspace}}`,
			want: "spec.environmentVariables: Invalid value: names that begin with AGENTIC_, YARDMASTER_, KUBERNETES_ or LD_, and PATH, HOME and TMPDIR, are reserved",
		},
		"a Secret mounted twice": {spec: `{prompt: a, secretMounts: [{name: a}, {name: a, mountPath: /secrets/b}]}`, want: `spec.secretMounts[1]: Duplicate value: {"name":"a"}`},
		"a Secret whose name is a path": {
			spec: `{prompt: a, secretMounts: [{name: ../b, mountPath: /secrets/b}]}`,
			want: `spec.secretMounts[0].name: Invalid value: "../b": spec.secretMounts[0].name in body should match '^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$'`,
		},
		"a Secret mounted outside /secrets": {
			spec: `{prompt: a, secretMounts: [{name: a, mountPath: /usr/bin}]}`,
			want: `spec.secretMounts[0].mountPath: Invalid value: "/usr/bin": spec.secretMounts[0].mountPath in body should match '^/secrets/[A-Za-z0-9_-][A-Za-z0-9._-]*$'`,
		},
		"a Secret mount path with ..": {
			spec: `{prompt: a, secretMounts: [{name: a, mountPath: /secrets/../etc}]}`,
			want: `spec.secretMounts[0].mountPath: Invalid value: "/secrets/../etc": spec.secretMounts[0].mountPath in body should match '^/secrets/[A-Za-z0-9_-][A-Za-z0-9._-]*$'`,
		},
		"a negative timeout":       {spec: `{prompt: a, limits: {timeout: -1s}}`, want: `spec.limits.timeout: Invalid value: "-1s": timeout must be a duration from 0s to 8760h`},
		"a timeout above one year": {spec: `{prompt: a, limits: {timeout: 8761h}}`, want: `spec.limits.timeout: Invalid value: "8761h": timeout must be a duration from 0s to 8760h`},
		"inactivityTimeout above timeout": {
			spec: `{prompt: a, limits: {timeout: 1m, inactivityTimeout: 61s}}`,
			want: "spec.limits.inactivityTimeout: Invalid value: inactivityTimeout must not be greater than timeout",
		},
		"inactivityTimeout above the default of timeout": {
			spec: `{prompt: a, limits: {inactivityTimeout: 5h}}`,
			want: "spec.limits.inactivityTimeout: Invalid value: inactivityTimeout must not be greater than timeout",
		},
		"a rerun without id":    {spec: `{prompt: a, rerun: {}}`, want: "spec.rerun.id: Required value"},
		"more than 5 retries":   {spec: `{prompt: a, retry: {limit: 6}}`, want: "spec.retry.limit: Invalid value: limit must be from 0 to 5"},
		"a workspace size of 0": {spec: `{prompt: a, workspace: {size: "0"}}`, want: `spec.workspace.size: Invalid value: "0": size must be greater than zero`},
		"a changed workspace": {
			spec: `{prompt: a, workspace: {size: 1Gi}}`, changedTo: `{prompt: a, workspace: {size: 2Gi}}`,
			want: "spec.workspace: Invalid value: workspace is immutable, except onLost",
		},
		"an added workspace": {spec: `{prompt: a}`, changedTo: `{prompt: a, workspace: {}}`, want: "spec.workspace: Invalid value: workspace is immutable, except onLost"},
		"an unknown onLost":  {spec: `{prompt: a, workspace: {onLost: Ignore}}`, want: `spec.workspace.onLost: Unsupported value: "Ignore": supported values: "Fail", "Recreate"`},
		"workspace and continueFrom": {
			spec: `{prompt: a, workspace: {}, continueFrom: {name: b}}`,
			want: "spec.workspace: Invalid value: with continueFrom the session uses the other session's workspace: do not set workspace",
		},
		"a changed continueFrom": {
			spec: `{prompt: a, continueFrom: {name: b}}`, changedTo: `{prompt: a, continueFrom: {name: c}}`,
			want: "spec.continueFrom: Invalid value: continueFrom is immutable",
		},
		"a workflow without a URL": {spec: `{agent: {workflow: {branch: main}}}`, want: "spec.agent.workflow.url: Required value"},
		"a workflow path outside the repository": {
			spec: `{agent: {workflow: {url: "https://a/b", path: a/../../b}}}`,
			want: `spec.agent.workflow.path: Invalid value: "a/../../b": path must stay within the repository`,
		},
		"an unknown field": {
			spec: `{prompt: a, securityContext: {privileged: true}}`,
			want: `AgenticSession in version "v1alpha1" cannot be handled as a AgenticSession: strict decoding error: unknown field "spec.securityContext"`,
		},
	})
}

func TestSessionRunnerRules(t *testing.T) {
	t.Parallel()
	assertSpecsRefused(t, "SessionRunner", map[string]invalidSpec{
		"credentials of git for no repositories": {
			spec: `{image: a, git: {secretRef: {name: b}}}`,
			want: "spec.git.repositories: Invalid value: secretRef and repositories, which get the credentials, require each other",
		},
		"repositories of git without credentials": {
			spec: `{image: a, git: {repositories: ["github.com/acme/*"]}}`,
			want: "spec.git.repositories: Invalid value: secretRef and repositories, which get the credentials, require each other",
		},
		"more sessions of a user than in all": {
			spec: `{image: a, limits: {maxSessions: 2, maxSessionsPerUser: 3}}`,
			want: "spec.limits.maxSessionsPerUser: Invalid value: maxSessionsPerUser must not be greater than maxSessions",
		},
		"a cost of 0":          {spec: `{image: a, limits: {maxCostUSD: 0}}`, want: "spec.limits.maxCostUSD: Invalid value: 0: maxCostUSD must be from 0.000001 to 1000000000"},
		"a cost of 1000000001": {spec: `{image: a, limits: {maxCostUSD: 1000000001}}`, want: "spec.limits.maxCostUSD: Invalid value: 1000000001: maxCostUSD must be from 0.000001 to 1000000000"},
		"an allowed Secret whose name is a path": {
			spec: `{image: a, allowed: {secrets: [{name: a/b}]}}`,
			want: `spec.allowed.secrets[0].name: Invalid value: "a/b": spec.allowed.secrets[0].name in body should match '^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$'`,
		},
		"an allowed Secret without keys in an empty list": {
			spec: `{image: a, allowed: {secrets: [{name: a, keys: []}]}}`,
			want: "spec.allowed.secrets[0].keys: Invalid value: 0: spec.allowed.secrets[0].keys in body should have at least 1 items",
		},
		"a key that is a path": {
			spec: `{image: a, allowed: {secrets: [{name: a, keys: [../b]}]}}`,
			want: `spec.allowed.secrets[0].keys[0]: Invalid value: "../b": spec.allowed.secrets[0].keys[0] in body should match '^[-._a-zA-Z0-9]+$'`,
		},
		"an allowed ConfigMap without keys": {
			spec: `{image: a, allowed: {configMaps: [{name: a}]}}`,
			want: "spec.allowed.configMaps: Invalid value: list the keys that sessions may use as variables",
		},
		"activityLease with a ServiceAccount": {
			spec: `{image: a, activityLease: true, template: {spec: {serviceAccountName: b}}}`,
			want: "spec.template.spec.serviceAccountName: Invalid value: activityLease needs a ServiceAccount for each session: remove serviceAccountName",
		},
		"inactivityTimeout without activityLease": {
			spec: `{image: a, limits: {inactivityTimeout: 1h}}`,
			want: "spec.limits.inactivityTimeout: Invalid value: inactivityTimeout requires activityLease",
		},
		"a token without an audience": {
			spec: `{image: a, template: {spec: {volumes: [{name: t, projected: {sources: [{serviceAccountToken: {path: b}}]}}]}}}`,
			want: "spec.template.spec.volumes: Invalid value: a projected volume has only serviceAccountToken sources, each with an audience",
		},
		"a projected volume with a Secret": {
			spec: `{image: a, template: {spec: {volumes: [{name: t, projected: {sources: [{secret: {name: b}}]}}]}}}`,
			want: `SessionRunner in version "v1alpha1" cannot be handled as a SessionRunner: strict decoding error: unknown field "spec.template.spec.volumes[0].projected.sources[0].secret"`,
		},
		"a volume of the node": {
			spec: `{image: a, template: {spec: {volumes: [{name: node, hostPath: {path: /}}]}}}`,
			want: `SessionRunner in version "v1alpha1" cannot be handled as a SessionRunner: strict decoding error: unknown field "spec.template.spec.volumes[0].hostPath"`,
		},
		"a volume without a source": {
			spec: `{image: a, template: {spec: {volumes: [{name: node}]}}}`,
			want: "spec.template.spec.volumes: Invalid value: set exactly one of configMap, secret, persistentVolumeClaim and projected for each volume",
		},
		"the network of the node": {
			spec: `{image: a, template: {spec: {hostNetwork: true}}}`,
			want: `SessionRunner in version "v1alpha1" cannot be handled as a SessionRunner: strict decoding error: unknown field "spec.template.spec.hostNetwork"`,
		},
		"another container": {
			spec: `{image: a, template: {spec: {containers: [{name: other}]}}}`,
			want: "spec.template.spec.containers: Invalid value: the only container is named runner; define sidecars as initContainers with restartPolicy: Always",
		},
		"an init container that ends": {
			spec: `{image: a, template: {spec: {initContainers: [{name: prepare, image: b}]}}}`,
			want: "spec.template.spec.initContainers: Invalid value: each of the initContainers is a sidecar: it has an image, restartPolicy: Always, and another name than runner",
		},
		"no image": {spec: `{}`, want: "spec.image: Required value"},
		"an environment variable with a reserved prefix": {
			spec: `{image: a, template: {spec: {containers: [{name: runner, env: [{name: AGENTIC_RUN, value: "7"}]}]}}}`,
			want: "spec.template.spec.containers: Invalid value: names of variables that begin with AGENTIC_ are reserved",
		},
		"runAsGroup root": {
			spec: `{image: a, template: {spec: {securityContext: {runAsGroup: 0}}}}`,
			want: "spec.template.spec.securityContext: Invalid value: runAsUser and runAsGroup must be from 1 to 2147483647",
		},
		"runAsUser root": {
			spec: `{image: a, template: {spec: {securityContext: {runAsUser: 0}}}}`,
			want: "spec.template.spec.securityContext: Invalid value: runAsUser and runAsGroup must be from 1 to 2147483647",
		},
		"a privileged port": {spec: `{image: a, network: {port: 80}}`, want: "spec.network.port: Invalid value: 80: spec.network.port in body should be greater than or equal to 1024"},
		"two sidecars with the same name": {
			spec: `{image: a, template: {spec: {initContainers: [{name: proxy, image: b, restartPolicy: Always}, {name: proxy, image: c, restartPolicy: Always}]}}}`,
			want: `spec.template.spec.initContainers[1]: Duplicate value: {"name":"proxy"}`,
		},
		"a sidecar with a securityContext": {
			spec: `{image: a, template: {spec: {initContainers: [{name: proxy, image: b, restartPolicy: Always, securityContext: {privileged: true}}]}}}`,
			want: `SessionRunner in version "v1alpha1" cannot be handled as a SessionRunner: strict decoding error: unknown field "spec.template.spec.initContainers[0].securityContext"`,
		},
		"egress to a host name": {
			spec: `{image: a, network: {egress: [{to: {ipBlock: {cidr: example.com}}, ports: [{port: 443}]}]}}`,
			want: "spec.network.egress[0].to.ipBlock: Invalid value: cidr and except must be networks, such as 10.0.0.0/8",
		},
		"egress without ports": {
			spec: `{image: a, network: {egress: [{to: {ipBlock: {cidr: 10.0.0.0/8}}, ports: []}]}}`,
			want: "spec.network.egress[0].ports: Invalid value: 0: spec.network.egress[0].ports in body should have at least 1 items",
		},
		"an invalid network in except": {
			spec: `{image: a, network: {egress: [{to: {ipBlock: {cidr: 10.0.0.0/8, except: [b]}}, ports: [{port: 443}]}]}}`,
			want: "spec.network.egress[0].to.ipBlock: Invalid value: cidr and except must be networks, such as 10.0.0.0/8",
		},
		"endPort below port": {
			spec: `{image: a, network: {egress: [{to: {ipBlock: {cidr: 10.0.0.0/8}}, ports: [{port: 443, endPort: 80}]}]}}`,
			want: "spec.network.egress[0].ports: Invalid value: each port must be a number from 1 to 65535, and endPort not less than port",
		},
		"an access mode that does not allow writing": {
			spec: `{image: a, workspace: {accessMode: ReadOnlyMany}}`,
			want: `spec.workspace.accessMode: Unsupported value: "ReadOnlyMany": supported values: "ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod"`,
		},
		"maxWorkspaceSize of 0": {spec: `{image: a, limits: {maxWorkspaceSize: "0"}}`, want: `spec.limits.maxWorkspaceSize: Invalid value: "0": maxWorkspaceSize must be greater than zero`},
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
		strings.Repeat("a", 52): `{prompt: a}`,
	} {
		object := newManifest(t, "AgenticSession", name, spec)
		object.SetNamespace(ns)
		if err := apply(t.Context(), strict, object, false); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Each manifest has a form of the ambient-code platform. docs/agenticsession.md lists what has to be changed.
func TestManifestsOfTheAmbientCodePlatform(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	strict := strictClient(t, &warningList{})
	for _, row := range []struct{ spec, want string }{
		{`{prompt: a, userContext: {userId: jane}}`, "unknown field \"spec.userContext.userId\""},
		{`{displayName: Chat}`, "prompt is required"},
		{`{prompt: a, repos: [{input: {url: "https://git.example/shop.git", branch: main}}]}`, "unknown field \"spec.repos[0].input\""},
		{`{prompt: a, repos: [{url: "https://git.example/a.git", output: {url: "https://git.example/b.git"}}]}`, "unknown field \"spec.repos[0].output\""},
		{`{prompt: Explain the tests, interactive: true, displayName: Tests, stopOnRunFinished: true,
			repos: [{url: "https://git.example/shop.git", branch: main, autoPush: true}], environmentVariables: {LEVEL: debug}}`, ""},
	} {
		object := newManifest(t, "AgenticSession", "demo", row.spec)
		object.SetNamespace(ns)
		err := apply(t.Context(), strict, object, false)
		if row.want == "" && err != nil || row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)) {
			t.Errorf("%s: %v, want %q", row.spec, err, row.want)
		}
		if err == nil {
			if err := cluster.Delete(t.Context(), object); err != nil {
				t.Error(err)
			}
		}
	}
}
