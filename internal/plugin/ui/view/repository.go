package view

import (
	"net/url"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// Repository is what became of a repository of a session.
type Repository struct {
	Name, Branch, Commit, State, Error string
	Level                              Level
	// PullRequest is the address of its pull request as text, and Link the same if a browser can open it safely.
	PullRequest, Link string
}

func newRepository(r *v1alpha1.SessionRepositoryResult) Repository {
	v := Repository{
		Name: cleanLine(r.Name), Branch: orUnknown(cleanLine(r.Branch)), Commit: orUnknown(shortCommit(cleanLine(r.Commit))), State: "not pushed",
		Error: cleanLine(r.Error), PullRequest: cleanLine(r.PullRequestURL), Link: webLink(r.PullRequestURL),
	}
	switch {
	case r.Error != "":
		v.State, v.Level = "failed", LevelProblem
	case r.Pushed:
		v.State, v.Level = "pushed", LevelGood
	}
	return v
}

func shortCommit(commit string) string {
	const length = 12
	return commit[:min(len(commit), length)]
}

// webLink returns the address if it is one of the web that looks like what it is, and otherwise nothing. The runner wrote it:
// it can be any text.
func webLink(text string) string {
	address, err := url.Parse(text)
	if err != nil || address.Scheme != "https" && address.Scheme != "http" || address.Host == "" || address.User != nil || cleanLine(text) != text {
		return ""
	}
	return address.String()
}
