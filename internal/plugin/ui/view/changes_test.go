package view

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/pod/agentprofile"
	"github.com/yardmaster/yardmaster/test/require"
)

func editEvent(t *testing.T, path, removed, added string) string {
	t.Helper()
	input, err := json.Marshal(map[string]string{"file_path": path, "old_string": removed, "new_string": added})
	require.NoError(t, err)
	event, err := json.Marshal(&agentprofile.Event{Type: agentprofile.EventToolCall, Tool: &agentprofile.Tool{Name: "Edit", Input: input}})
	require.NoError(t, err)
	return "run 1, attempt 2 | " + string(event) + "\n"
}

func sessionWith(result *v1alpha1.SessionResult) *v1alpha1.AgenticSession {
	return &v1alpha1.AgenticSession{ObjectMeta: metav1.ObjectMeta{Name: "fix", Namespace: "a"}, Status: v1alpha1.AgenticSessionStatus{Result: result}}
}

func TestChangesOfAnAgentAreGroupedByFile(t *testing.T) {
	log := editEvent(t, "a.go", "x := 1\n", "x := 2\ny := 3\n") + "run 1, attempt 2 | no event\n" + `run 1, attempt 2 | {"type":"toolCall","tool":{"name":"bash","input":{"command":"ls"}}}` + "\n" +
		editEvent(t, "b.go", "", "\tnew\x1b[2J") + editEvent(t, "a.go", "z", "") + `{"type":"toolCall"}` + "\n{\n"
	c := NewChanges(NewEntry(sessionWith(nil)), []byte(log), "")
	want := []FileChange{
		{Path: "a.go", Added: 2, Removed: 2, Lines: []DiffLine{{Removed: true, Text: "x := 1"}, {Added: true, Text: "x := 2"}, {Added: true, Text: "y := 3"}, {Text: "…"}, {Removed: true, Text: "z"}}},
		{Path: "b.go", Added: 1, Lines: []DiffLine{{Added: true, Text: "    new\uFFFD[2J"}}},
	}
	require.Equal(t, want, c.Files)
}

func TestChangesAreBounded(t *testing.T) {
	var log strings.Builder
	for i := range maxChangedFiles + 10 {
		log.WriteString(editEvent(t, fmt.Sprintf("%03d.go", i), "", strings.Repeat("x", 60<<10)))
	}
	c := NewChanges(NewEntry(sessionWith(nil)), []byte(log.String()), "")
	size := 0
	for _, file := range c.Files {
		for _, line := range file.Lines {
			size += len(line.Text)
		}
	}
	if len(c.Files) != maxChangedFiles || c.More != 10 || size > maxChangeBytes || c.Files[maxChangedFiles-1].More != 1 {
		t.Errorf("%d files and %d more, %d bytes", len(c.Files), c.More, size)
	}
}

func TestRepositoriesHaveLinksToPullRequestsOfTheWebOnly(t *testing.T) {
	for address, link := range map[string]string{
		"https://git.example/shop/pull/7": "https://git.example/shop/pull/7", "http://git.local:3000/a/pulls/1": "http://git.local:3000/a/pulls/1",
		"javascript:alert(1)": "", "data:text/html,x": "", "//git.example": "", "https:": "", "https://me:secret@git.example": "", "https://git.example/\u202e": "", "/shop": "", "": "", "https://%zz": "",
	} {
		s := sessionWith(&v1alpha1.SessionResult{Repositories: []v1alpha1.SessionRepositoryResult{{Name: "shop", Commit: "0123456789abcdef", PullRequestURL: address}}})
		r := NewSession(NewEntry(s), s, testTime).Repositories[0]
		require.True(t, r.Link == link && r.Commit == "0123456789ab" && r.State == "not pushed", "%q: %+v", address, r)
	}
}

func TestRepositoryThatWasNotPushedSaysWhy(t *testing.T) {
	s := sessionWith(&v1alpha1.SessionResult{Repositories: []v1alpha1.SessionRepositoryResult{{Name: "shop", Error: "rejected"}, {Name: "web", Pushed: true, Branch: "fix"}}})
	repositories := NewSession(NewEntry(s), s, testTime).Repositories
	if r := repositories[0]; r.State != "failed" || r.Level != LevelProblem || r.Error != "rejected" || r.Branch != Unknown {
		t.Errorf("%+v", r)
	}
	if r := repositories[1]; r.State != "pushed" || r.Level != LevelGood || r.Branch != "fix" {
		t.Errorf("%+v", r)
	}
}
