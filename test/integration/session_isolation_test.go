package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
	"github.com/yardmaster/yardmaster/test/testenv"
)

// clusterRolesOfUsers returns the rules of the ClusterRoles for users of sessions, Schedules and SequentialJobs, by their names.
func clusterRolesOfUsers(t *testing.T) map[string][]rbacv1.PolicyRule {
	t.Helper()
	rules := map[string][]rbacv1.PolicyRule{}
	for _, file := range []string{"session.yaml", "schedule.yaml", "sequentialjob.yaml"} {
		raw, err := os.ReadFile(filepath.Join(repositoryRoot, "config", "rbac", "users", file))
		require.NoError(t, err)
		for document := range bytes.SplitSeq(raw, []byte("\n---\n")) {
			role := &rbacv1.ClusterRole{}
			require.NoError(t, yaml.UnmarshalStrict(document, role))
			rules[role.Name] = role.Rules
		}
	}
	return rules
}

// clientWithRoles returns a client of a user that has the rules of these ClusterRoles, in one namespace.
func clientWithRoles(t *testing.T, ns, user string, names ...string) client.Client {
	t.Helper()
	all := clusterRolesOfUsers(t)
	for _, name := range names {
		require.True(t, all[name] != nil, "there is no ClusterRole %s", name)
		createIfMissing(t, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns}, Rules: all[name]})
		mustCreate(t, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name + "-" + user, Namespace: ns},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		})
	}
	c := impersonate(t, user, "system:authenticated")
	probe := &v1alpha1.AgenticSession{ObjectMeta: metav1.ObjectMeta{Name: "probe", Namespace: ns}}
	probe.Spec.Prompt, probe.Spec.UserContext = "none", &v1alpha1.UserContext{UserID: user}
	poll.Until(t, user+" to have permissions", func() bool {
		return c.List(t.Context(), &v1alpha1.AgenticSessionList{}, client.InNamespace(ns)) == nil &&
			c.Create(t.Context(), probe.DeepCopy(), client.DryRunAll) == nil
	})
	return c
}

// Neither the owner nor an administrator can change or remove the owner, with and without the webhooks.
func TestTheOwnerOfASessionNeverChanges(t *testing.T) {
	t.Parallel()
	ns, unchecked, number := namespace(t), namespaceWithoutWebhook(t), 0
	for title, row := range map[string]struct{ patch, want string }{
		"another owner":              {`[{"op": "replace", "path": "/spec/userContext/userID", "value": "bob"}]`, "userContext is immutable"},
		"no name":                    {`[{"op": "remove", "path": "/spec/userContext/userID"}]`, "userContext is immutable"},
		"an empty name":              {`[{"op": "replace", "path": "/spec/userContext/userID", "value": ""}]`, "userContext is immutable"},
		"an empty userContext":       {`[{"op": "replace", "path": "/spec/userContext", "value": {}}]`, "userContext is immutable"},
		"a removed userContext":      {`[{"op": "remove", "path": "/spec/userContext"}]`, ""},
		"a userContext that is null": {`[{"op": "replace", "path": "/spec/userContext", "value": null}]`, ""},
	} {
		number++
		t.Run(title, func(t *testing.T) {
			patch := client.RawPatch(types.JSONPatchType, []byte(row.patch))
			for _, user := range []string{"ann", "admin"} {
				name := fmt.Sprint(user, number)
				require.NoError(t, clientOf(t, "ann").Create(t.Context(), sessionWithSpec(ns, name, map[string]any{"prompt": "a"})))
				wantOwnerKept(t, ns, name, clientOf(t, user).Patch(t.Context(), sessionWithSpec(ns, name, nil), patch), row.want)
			}
			// Without the webhooks, nothing restores a removed owner, so removing it is refused.
			name := fmt.Sprint("fix", number)
			mustCreate(t, sessionWithSpec(unchecked, name, map[string]any{"prompt": "a", "userContext": map[string]any{"userID": "ann"}}))
			err := cluster.Patch(t.Context(), sessionWithSpec(unchecked, name, nil), patch)
			wantOwnerKept(t, unchecked, name, err, "userContext is immutable")
		})
	}
}

// wantOwnerKept checks that a change failed with this message, or succeeded without one, and that the
// session still belongs to ann.
func wantOwnerKept(t *testing.T, ns, name string, err error, message string) {
	t.Helper()
	if message == "" && err != nil || message != "" && (err == nil || !strings.Contains(err.Error(), message)) {
		t.Errorf("error %v, want %q", err, message)
	}
	stored := &v1alpha1.AgenticSession{}
	mustGet(t, client.ObjectKey{Namespace: ns, Name: name}, stored)
	require.True(t, stored.Spec.UserContext != nil && stored.Spec.UserContext.UserID == "ann", "the owner is %+v", stored.Spec.UserContext)
}

func TestOnlyAnAdministratorChangesTheSessionOfAnotherUser(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	waitForAdmissionPolicies(t)
	ann := clientWithRoles(t, ns, "ann", "yardmaster-session-view", "yardmaster-session-edit")
	bob := clientWithRoles(t, ns, "bob", "yardmaster-session-view", "yardmaster-session-edit")
	admin := clientWithRoles(t, ns, "admin", "yardmaster-session-view", "yardmaster-session-edit", "yardmaster-session-admin")
	require.NoError(t, ann.Create(t.Context(), sessionWithSpec(ns, "fix", map[string]any{"prompt": "a"})))
	stop := func(c client.Client, suspend string) error {
		patch := client.RawPatch(mergePatch, []byte(`{"spec": {"suspend": `+suspend+`}}`))
		return c.Patch(t.Context(), sessionWithSpec(ns, "fix", nil), patch)
	}
	if err := stop(bob, "true"); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), belongsToAnn) || !strings.Contains(err.Error(), "verb administer") {
		t.Errorf("another user: %v", err)
	}
	for user, c := range map[string]client.Client{"the owner": ann, "an administrator": admin} {
		for _, mode := range []string{"true", "false"} {
			wantAllowed(t, user+", "+mode, stop(c, mode))
		}
	}
	labels := client.RawPatch(mergePatch, []byte(`{"metadata": {"labels": {"team": "a"}, "annotations": {"a": "b"}, "finalizers": ["a.example/b"]}}`))
	wantAllowed(t, "metadata", bob.Patch(t.Context(), sessionWithSpec(ns, "fix", nil), labels))
	wantAllowed(t, "finalizers", bob.Patch(t.Context(), sessionWithSpec(ns, "fix", nil), client.RawPatch(mergePatch, []byte(`{"metadata": {"finalizers": null}}`))))
}

// The webhooks record the author of a session. Without them, in an emergency, nobody can create a session, or a Schedule of
// sessions, in the name of somebody else.
func TestWithoutTheWebhooksASessionIsOfItsAuthor(t *testing.T) {
	t.Parallel()
	waitForAdmissionPolicies(t)
	ns := namespaceWithoutWebhook(t)
	roles := []string{"yardmaster-session-view", "yardmaster-session-edit", "yardmaster-schedule-view", "yardmaster-schedule-edit"}
	users := map[string]client.Client{
		"ann":   clientWithRoles(t, ns, "ann", roles...),
		"admin": clientWithRoles(t, ns, "admin", append(roles, "yardmaster-session-admin")...),
	}
	newSchedule := func(name string, spec map[string]any) *unstructured.Unstructured {
		s := sessionWithSpec(ns, name, map[string]any{"schedule": "0 0 1 1 *", "agenticSession": map[string]any{"spec": spec}})
		s.SetKind("Schedule")
		return s
	}
	for title, row := range map[string]struct {
		user, context string
		want          string
	}{
		"the name of the author":                 {"ann", `{userID: ann}`, ""},
		"the name of somebody else":              {"ann", `{userID: bob}`, "userContext.userID must be ann"},
		"a name that begins with the author's":   {"ann", `{userID: ann2}`, "userContext.userID must be ann"},
		"no name":                                {"ann", `{}`, "userContext.userID must be ann"},
		"no user":                                {"ann", "null", "userContext.userID must be ann"},
		"the name of somebody else, by an admin": {"admin", `{userID: bob}`, ""},
	} {
		t.Run(title, func(t *testing.T) {
			var context any
			require.NoError(t, yaml.Unmarshal([]byte(row.context), &context))
			spec := map[string]any{"prompt": "a", "userContext": context}
			for kind, object := range map[string]*unstructured.Unstructured{"AgenticSession": sessionWithSpec(ns, "new", spec), "Schedule": newSchedule("new", spec)} {
				err := users[row.user].Create(t.Context(), object, client.DryRunAll)
				if refused := row.want != ""; apierrors.IsForbidden(err) != refused || refused && !strings.Contains(err.Error(), row.want) || !refused && err != nil {
					t.Errorf("%s: %v, want %q", kind, err, row.want)
				}
			}
		})
	}
	anns := newSchedule("anns", map[string]any{"prompt": "a", "userContext": map[string]any{"userID": "ann"}})
	require.NoError(t, users["ann"].Create(t.Context(), anns))
	bob := clientWithRoles(t, ns, "bob", roles...)
	for patch, want := range map[string]string{
		`{"spec": {"suspend": true}}`:                                                               "",
		`{"spec": {"agenticSession": {"spec": {"prompt": "b"}}}}`:                                   "userContext.userID must be bob",
		`{"spec": {"agenticSession": {"spec": {"prompt": "b", "userContext": {"userID": "bob"}}}}}`: "",
	} {
		err := bob.Patch(t.Context(), anns.DeepCopy(), client.RawPatch(mergePatch, []byte(patch)), client.DryRunAll)
		if refused := want != ""; apierrors.IsForbidden(err) != refused || refused && !strings.Contains(err.Error(), want) || !refused && err != nil {
			t.Errorf("%s: %v, want %q", patch, err, want)
		}
	}
}

// isolationTest is a namespace in which ann works with sessions, and bob attacks them. Both can only view
// and edit sessions.
type isolationTest struct {
	*testing.T
	ns  string
	bob client.Client
	// inputs is the Secret with the inputs of ann's session.
	inputs string
	// uids of ann's sessions.
	uids []string
}

// Objects of ann.
const (
	annsSession = "anns"
	// annsOldSession is a session that bob deletes.
	annsOldSession = "anns-old"
	annsSecret     = "anns-token"
	annsAccount    = "anns-account-token"
	// sharedSecret is a Secret that the SessionRunner allows.
	sharedSecret = "shared"
)

func newIsolationTest(t *testing.T) *isolationTest {
	t.Helper()
	waitForAdmissionPolicies(t)
	i := &isolationTest{T: t, ns: newNamespace(t, map[string]string{"pod-security.kubernetes.io/enforce": "restricted"})}
	for _, name := range []string{annsSecret, sharedSecret} {
		mustCreate(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: i.ns}, StringData: map[string]string{"token": "a", "other": "b"}})
	}
	mustCreate(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "anns", Namespace: i.ns}})
	mustCreate(t, &corev1.Secret{Type: corev1.SecretTypeServiceAccountToken, ObjectMeta: metav1.ObjectMeta{
		Name: annsAccount, Namespace: i.ns, Annotations: map[string]string{corev1.ServiceAccountNameKey: "anns"},
	}})
	ann := clientWithRoles(t, i.ns, "ann", "yardmaster-session-view", "yardmaster-session-edit")
	i.bob = clientWithRoles(t, i.ns, "bob", "yardmaster-session-view", "yardmaster-session-edit")
	runner := newUnschedulableRunner(t, i.ns)
	runner.Spec.Allowed.Secrets = []v1alpha1.SessionSource{testbuilder.Source(sharedSecret, "token", "D_PRELOAD", "GENTIC_RUN"), testbuilder.Source("files")}
	runner.Spec.Allowed.ConfigMaps = []v1alpha1.SessionSource{testbuilder.Source("settings", "PATH")}
	mustCreate(t, runner)
	for _, name := range []string{annsOldSession, annsSession} {
		if err := ann.Create(t.Context(), sessionWithSpec(i.ns, name, map[string]any{
			"prompt": "a", "workspace": map[string]any{"retention": "Retain"}, "environmentVariables": map[string]any{"A": "b"},
		})); err != nil {
			t.Fatal(err)
		}
		s := &sessionTest{t, client.ObjectKey{Namespace: i.ns, Name: name}}
		s.exitRunner(0, `{"sdkSessionId": "anns-conversation"}`)
		completed := s.waitForPhase(v1alpha1.SessionCompleted)
		i.inputs, i.uids = completed.Status.Attempts[0].InputsRef.Name, append(i.uids, string(completed.UID))
	}
	return i
}

func (i *isolationTest) patch(spec string) error {
	return i.bob.Patch(i.Context(), sessionWithSpec(i.ns, annsSession, nil), client.RawPatch(mergePatch, []byte(`{"spec": `+spec+`}`)))
}

func (i *isolationTest) create(name, spec string) error {
	var fields map[string]any
	require.NoError(i, yaml.Unmarshal([]byte(spec), &fields))
	return i.bob.Create(i.Context(), sessionWithSpec(i.ns, name, fields))
}

// An attack is either refused by the API server, or creates a session that the operator refuses, with this
// text in the error or in the condition SpecAccepted or Blocked.
type attack struct {
	run  func(i *isolationTest, name string) error
	want string
}

func change(spec string) func(*isolationTest, string) error {
	return func(i *isolationTest, _ string) error { return i.patch(spec) }
}

func newSession(spec string) func(*isolationTest, string) error {
	return func(i *isolationTest, name string) error { return i.create(name, spec) }
}

const (
	belongsToAnn     = `the session belongs to user ann, so only this user`
	ownedByOtherUser = "AgenticSession anns of continueFrom belongs to another user"
)

// attacks on ann's session and her workspace.
var attacksOnSessions = map[string]attack{
	"rerun her session":                          {change(`{"rerun": {"id": "2"}}`), belongsToAnn},
	"stop her session":                           {change(`{"suspend": true}`), belongsToAnn},
	"add a Secret to her session":                {change(`{"secretMounts": [{"name": "shared"}]}`), belongsToAnn},
	"add variables of a Secret":                  {change(`{"envFrom": [{"secretRef": {"name": "shared"}}]}`), belongsToAnn},
	"add a variable to her session":              {change(`{"environmentVariables": {"A": "evil"}}`), belongsToAnn},
	"add a tool server to her session":           {change(`{"agent": {"mcpServers": {"custom": {"a": {"url": "https://evil.example"}}}}}`), belongsToAnn},
	"replace the instructions of the agent":      {change(`{"agent": {"workflow": {"url": "https://evil.example/a"}}}`), belongsToAnn},
	"add a repository to her session":            {change(`{"repos": [{"url": "https://evil.example/a"}]}`), belongsToAnn},
	"run another SessionRunner in her workspace": {change(`{"runner": "other", "rerun": {"id": "2"}}`), belongsToAnn},
	"delete her session after a time":            {change(`{"ttlSecondsAfterFinished": 0}`), belongsToAnn},
	"take over her session":                      {change(`{"userContext": {"userID": "bob"}}`), "userContext is immutable"},
	"remove her name and rerun":                  {change(`{"userContext": null, "rerun": {"id": "2"}}`), belongsToAnn},
	"apply a manifest of her session by force": {func(i *isolationTest, _ string) error {
		manifest := sessionWithSpec(i.ns, annsSession, map[string]any{"prompt": "a", "rerun": map[string]any{"id": "2"}})
		return i.bob.Apply(i.Context(), client.ApplyConfigurationFromUnstructured(manifest), client.FieldOwner("bob"), client.ForceOwnership)
	}, belongsToAnn},
	"replace her session": {func(i *isolationTest, _ string) error {
		stored := &unstructured.Unstructured{}
		stored.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("AgenticSession"))
		require.NoError(i, i.bob.Get(i.Context(), client.ObjectKey{Namespace: i.ns, Name: annsSession}, stored))
		stored.Object["spec"] = map[string]any{"prompt": "a", "rerun": map[string]any{"id": "2"}, "workspace": map[string]any{"retention": "Retain"}}
		return i.bob.Update(i.Context(), stored)
	}, belongsToAnn},
	"write the status of her session": {func(i *isolationTest, _ string) error {
		return i.bob.Status().Patch(i.Context(), sessionWithSpec(i.ns, annsSession, nil), client.RawPatch(mergePatch, []byte(`{"status": {"phase": "Pending"}}`)))
	}, "forbidden"},
	"continue her session":             {newSession(`{prompt: a, continueFrom: {name: anns}}`), ownedByOtherUser},
	"continue her session in her name": {newSession(`{prompt: a, continueFrom: {name: anns}, userContext: {userID: ann}}`), ownedByOtherUser},
	"read the inputs of her session":   {newSessionWithInputs(`{prompt: a, secretMounts: [{name: %s}]}`), "the inputs Secret of a session is only for its runner"},
	"read her inputs as variables":     {newSessionWithInputs(`{prompt: a, envFrom: [{secretRef: {name: %s}}]}`), "the inputs Secret of a session is only for its runner"},
	"continue a session with the name of her deleted one": {func(i *isolationTest, name string) error {
		again := &sessionTest{i.T, client.ObjectKey{Namespace: i.ns, Name: annsOldSession}}
		require.NoError(i, i.bob.Delete(i.Context(), again.getSession()))
		require.NoError(i, i.create(annsOldSession, `{prompt: a, workspace: {}, limits: {startupTimeout: 1s}}`))
		again.waitForPhase(v1alpha1.SessionFailed) // NameTaken
		return i.create(name, `{prompt: a, continueFrom: {name: `+annsOldSession+`}}`)
	}, "PersistentVolumeClaim anns-old-workspace does not belong to the continued session"},
	"continue a session that was refused her workspace": {func(i *isolationTest, name string) error {
		require.NoError(i, i.create("refused", `{prompt: a, continueFrom: {name: anns}, limits: {startupTimeout: 1s}}`))
		(&sessionTest{i.T, client.ObjectKey{Namespace: i.ns, Name: "refused"}}).waitForPhase(v1alpha1.SessionFailed)
		return i.create(name, `{prompt: a, continueFrom: {name: refused}}`)
	}, "AgenticSession refused of continueFrom has no persistent workspace"},
	"continue her session later": {func(i *isolationTest, _ string) error {
		require.NoError(i, i.create("later", `{prompt: a}`))
		patch := client.RawPatch(mergePatch, []byte(`{"spec": {"continueFrom": {"name": "anns"}}}`))
		return i.bob.Patch(i.Context(), sessionWithSpec(i.ns, "later", nil), patch)
	}, "continueFrom is immutable"},
	"set the status of a new session": {func(i *isolationTest, name string) error {
		claims := sessionWithSpec(i.ns, name, map[string]any{"prompt": "a", "continueFrom": map[string]any{"name": annsSession}})
		claims.Object["status"] = map[string]any{"observedGeneration": int64(1), "workspace": map[string]any{"claimRef": map[string]any{"name": annsSession + "-workspace"}}}
		return i.bob.Create(i.Context(), claims)
	}, ownedByOtherUser},
	"create a SessionRunner": {func(i *isolationTest, _ string) error {
		runner := &v1alpha1.SessionRunner{ObjectMeta: metav1.ObjectMeta{Name: "bobs", Namespace: i.ns}}
		runner.Spec.Image = "evil:1"
		return i.bob.Create(i.Context(), runner)
	}, "forbidden"},
	"read her Secret": {func(i *isolationTest, _ string) error {
		return i.bob.Get(i.Context(), client.ObjectKey{Namespace: i.ns, Name: annsSecret}, &corev1.Secret{})
	}, "forbidden"},
}

// attacksOnSecrets with sessions of bob.
var attacksOnSecrets = map[string]attack{
	"mount her Secret":                           {newSession(`{prompt: a, secretMounts: [{name: anns-token}]}`), "does not allow Secret anns-token"},
	"mount her Secret if it exists":              {newSession(`{prompt: a, secretMounts: [{name: anns-token, optional: true}]}`), "does not allow Secret anns-token"},
	"use her Secret as variables":                {newSession(`{prompt: a, envFrom: [{secretRef: {name: anns-token}}]}`), "does not allow Secret anns-token"},
	"mount the token of a ServiceAccount":        {newSession(`{prompt: a, secretMounts: [{name: anns-account-token}]}`), "does not allow Secret anns-account-token"},
	"use the token of a ServiceAccount":          {newSession(`{prompt: a, envFrom: [{secretRef: {name: anns-account-token}}]}`), "does not allow Secret anns-account-token"},
	"use a Secret that is allowed only as files": {newSession(`{prompt: a, envFrom: [{secretRef: {name: files}}]}`), "lists no keys of Secret files"},
	"use a ConfigMap that is not allowed":        {newSession(`{prompt: a, envFrom: [{configMapRef: {name: kube-root-ca.crt}}]}`), "does not allow ConfigMap kube-root-ca.crt"},
	"set LD_PRELOAD with a prefix":               {newSession(`{prompt: a, envFrom: [{prefix: L, secretRef: {name: shared}}]}`), "sets the variable LD_PRELOAD, which is reserved"},
	"set a variable of the operator":             {newSession(`{prompt: a, envFrom: [{prefix: A, secretRef: {name: shared}}]}`), "sets the variable AGENTIC_RUN, which is reserved"},
	"set a reserved prefix":                      {newSession(`{prompt: a, envFrom: [{prefix: KUBERNETES_, secretRef: {name: shared}}]}`), "the prefix is reserved"},
	"set PATH with a ConfigMap":                  {newSession(`{prompt: a, envFrom: [{configMapRef: {name: settings}}]}`), "sets the variable PATH, which is reserved"},
}

// newSessionWithInputs returns an attack with a session whose spec contains the name of ann's inputs.
func newSessionWithInputs(format string) func(*isolationTest, string) error {
	return func(i *isolationTest, name string) error { return i.create(name, fmt.Sprintf(format, i.inputs)) }
}

// Bob tries to reach the Secrets, the workspace and the session of ann. Each attempt is refused, and no Pod
// of bob's sessions contains anything of ann's.
func TestAUserCannotReachWhatBelongsToAnotherUser(t *testing.T) {
	t.Parallel()
	i := newIsolationTest(t)
	before := (&sessionTest{t, client.ObjectKey{Namespace: i.ns, Name: annsSession}}).getSession()
	number := 0
	attacks := maps.Clone(attacksOnSessions)
	maps.Copy(attacks, attacksOnSecrets)
	for title, row := range attacks {
		number++
		name := fmt.Sprintf("bobs-%d", number)
		t.Run(title, func(t *testing.T) {
			sub := *i
			sub.T = t
			sub.wantRefused(name, row)
		})
	}
	after := (&sessionTest{t, client.ObjectKey{Namespace: i.ns, Name: annsSession}}).getSession()
	if after.Generation != before.Generation || after.Status.Run != 1 {
		t.Errorf("the session changed: generation %d, run %d", after.Generation, after.Status.Run)
	}
	i.wantNoPodWithObjectsOfAnn()
}

func (i *isolationTest) wantRefused(name string, row attack) {
	i.Helper()
	if err := row.run(i, name); err != nil {
		require.True(i, strings.Contains(err.Error(), row.want), "error %v, want %q", err, row.want)
		return
	}
	s := &sessionTest{i.T, client.ObjectKey{Namespace: i.ns, Name: name}}
	found := ""
	poll.Until(i.T, "the session to be refused with: "+row.want, func() bool {
		found = ""
		for _, c := range s.getSession().Status.Conditions {
			if c.Type == v1alpha1.ConditionSpecAccepted && c.Status != metav1.ConditionTrue || c.Type == v1alpha1.ConditionBlocked && c.Status == metav1.ConditionTrue {
				found += c.Message
			}
		}
		return strings.Contains(found, row.want)
	})
	require.Equal(i, 0, len(s.listJobs()))
}

// wantNoPodWithObjectsOfAnn checks the templates of all Jobs but those of ann's sessions.
func (i *isolationTest) wantNoPodWithObjectsOfAnn() {
	i.Helper()
	var jobs batchv1.JobList
	require.NoError(i, cluster.List(context.Background(), &jobs, client.InNamespace(i.ns)))
	for _, job := range jobs.Items {
		if slices.Contains(i.uids, job.Labels[agenticsession.LabelSessionUID]) {
			continue
		}
		raw, err := job.Spec.Template.Marshal()
		require.NoError(i, err)
		for _, name := range []string{annsSession + "-workspace", annsOldSession + "-workspace", annsSecret, annsAccount, i.inputs} {
			require.True(i, !bytes.Contains(raw, []byte(name)), "the Pod of Job %s contains %s", job.Name, name)
		}
	}
}

// creatorRow is a write by ann, and what is recorded. Both the webhook and the MutatingAdmissionPolicy
// behave like this.
type creatorRow struct {
	// before is stored first, by bob; nil if ann creates the session.
	before map[string]any
	// spec is what ann writes.
	spec map[string]any
	want *v1alpha1.UserContext
	// wantError is true if the API server rejects the request.
	wantError bool
}

func creatorRows() map[string]creatorRow {
	ann, bob := &v1alpha1.UserContext{UserID: "ann"}, &v1alpha1.UserContext{UserID: "bob"}
	spec := func(userContext any) map[string]any {
		return map[string]any{"prompt": "do it", "userContext": userContext}
	}
	plain := map[string]any{"prompt": "do it"}
	claim := map[string]any{"userID": "root"}
	return map[string]creatorRow{
		"a new session without a user":                    {spec: plain, want: ann},
		"a new session that claims another user":          {spec: spec(claim), want: ann},
		"a new session with another field of a user":      {spec: spec(map[string]any{"userID": "root", "displayName": "Ann"}), want: ann},
		"a new session with a number as the user's name":  {spec: spec(map[string]any{"userID": int64(1)}), want: ann},
		"a new session with a user of a wrong type":       {spec: spec("root"), want: ann},
		"a new session with a list of users":              {spec: spec([]any{"root"}), want: ann},
		"a new session without a spec":                    {spec: nil, wantError: true},
		"an update by another user keeps the creator":     {before: plain, spec: map[string]any{"prompt": "do it", "suspend": true}, want: bob},
		"an update cannot claim another user":             {before: plain, spec: spec(claim), wantError: true},
		"an update with the stored user":                  {before: plain, spec: spec(map[string]any{"userID": "bob"}), want: bob},
		"an update with a user that is null":              {before: plain, spec: spec(nil), want: bob},
		"a new session with a user that is null":          {spec: spec(nil), want: ann},
		"a new session with an empty user":                {spec: spec(map[string]any{}), want: ann},
		"a new session with a field that differs in case": {spec: map[string]any{"prompt": "do it", "UserContext": claim}, want: ann},
	}
}

func TestWebhookRecordsTheCreatorOfASession(t *testing.T) {
	t.Parallel()
	testCreators(t, namespace(t))
}

func TestAdmissionPolicyRecordsTheCreatorOfASession(t *testing.T) {
	const policyLabel = "test.yardmaster.dev/admission-policy"
	installAdmissionPolicy(t, policyLabel)
	ns := newNamespace(t, map[string]string{testenv.WebhookLabel: "off", policyLabel: "on"})
	poll.Until(t, "the policy to be effective", func() bool {
		s := sessionWithSpec(ns, "effective", map[string]any{"prompt": "do it"})
		if err := cluster.Create(t.Context(), s, client.DryRunAll); err != nil { // for a while, policies do not know a new kind
			t.Log(err)
			return false
		}
		_, found, _ := unstructured.NestedMap(s.Object, "spec", "userContext")
		return found
	})
	testCreators(t, ns)
}

func testCreators(t *testing.T, ns string) {
	number := 0
	for title, row := range creatorRows() {
		number++
		name := fmt.Sprintf("s%d", number)
		t.Run(title, func(t *testing.T) {
			if row.before != nil {
				require.NoError(t, clientOf(t, "bob").Create(t.Context(), sessionWithSpec(ns, name, row.before)))
			}
			err := writeSpec(t.Context(), clientOf(t, "ann"), ns, name, row)
			if row.wantError {
				require.True(t, err != nil, "the request was accepted")
				return
			}
			require.NoError(t, err)
			stored := &v1alpha1.AgenticSession{}
			mustGet(t, client.ObjectKey{Namespace: ns, Name: name}, stored)
			require.Equal(t, row.want, stored.Spec.UserContext)
		})
	}
}

// writeSpec creates a session, or replaces the spec of the one that is stored.
func writeSpec(ctx context.Context, c client.Client, ns, name string, row creatorRow) error {
	if row.before == nil {
		return c.Create(ctx, sessionWithSpec(ns, name, row.spec))
	}
	raw, err := json.Marshal([]map[string]any{{"op": "replace", "path": "/spec", "value": row.spec}})
	if err != nil {
		return err
	}
	return c.Patch(ctx, sessionWithSpec(ns, name, nil), client.RawPatch(types.JSONPatchType, raw))
}

func sessionWithSpec(ns, name string, spec map[string]any) *unstructured.Unstructured {
	s := &unstructured.Unstructured{Object: map[string]any{}}
	if spec != nil {
		s.Object["spec"] = spec
	}
	s.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("AgenticSession"))
	s.SetNamespace(ns)
	s.SetName(name)
	return s
}

// clientOf returns a client that impersonates an administrator.
func clientOf(t *testing.T, user string) client.Client {
	t.Helper()
	return impersonate(t, user, "system:masters")
}

// installAdmissionPolicy installs the component admission-policy for the namespaces with this label. It skips the test where the API
// server does not have its kinds.
func installAdmissionPolicy(t *testing.T, label string) {
	t.Helper()
	if !hasMutatingAdmissionPolicies(t) {
		t.Skipf("Kubernetes %s has no MutatingAdmissionPolicy, only a webhook that does the same", serverVersion(t))
	}
	for _, object := range readManifests(t, filepath.Join(repositoryRoot, "config", "components", "admission-policy", "policy.yaml")) {
		if object.GetKind() == "MutatingAdmissionPolicy" {
			selected := map[string]any{"matchLabels": map[string]any{label: "on"}}
			require.NoError(t, unstructured.SetNestedMap(object.Object, selected, "spec", "matchConstraints", "namespaceSelector"))
		}
		mustCreate(t, object)
	}
}
