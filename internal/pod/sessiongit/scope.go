package sessiongit

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Scope is the list of repositories that get the credentials of a SessionRunner: its field git.repositories. The operator decides with
// it before anything starts, and the container that has the credentials for each command of git.
type Scope []pattern

// pattern is one entry, [user@]host[:port]/path. In the path, * is a part of a name, and ** at the end is any path.
type pattern struct {
	text, user, host, port string
	path                   *regexp.Regexp
}

// location is where a repository is. Only a plain URL has one: no server and no program can take it for another repository.
type location struct {
	isSSH            bool
	user, host, port string
	// path without a slash at its ends, and without .git.
	path string
	// url is what git gets. Its host is in lower case, and it has no port if that is the default one.
	url string
}

const (
	defaultUser    = "git"
	gitSuffix      = ".git"
	anyPath        = "**"
	userExpression = `([A-Za-z0-9_][A-Za-z0-9_.-]*)`
	hostExpression = `([A-Za-z0-9](?:[-A-Za-z0-9.]*[A-Za-z0-9])?)`
	portExpression = `(?::([1-9][0-9]{0,4}))?`
)

var (
	patternExpression = regexp.MustCompile(`^(?:` + userExpression + `@)?` + hostExpression + portExpression + `/([A-Za-z0-9._~+*/-]+)$`)
	httpsExpression   = regexp.MustCompile(`^(?i:https)://()` + hostExpression + portExpression + `/([A-Za-z0-9._~+/-]+)$`)
	sshExpression     = regexp.MustCompile(`^(?i:ssh)://(?:` + userExpression + `@)?` + hostExpression + portExpression + `/([A-Za-z0-9._~+/-]+)$`)
	scpExpression     = regexp.MustCompile(`^` + userExpression + `@` + hostExpression + `()` + `:([A-Za-z0-9._~+/-]+)$`)
)

// ParseScope parses patterns.
func ParseScope(texts []string) (Scope, error) {
	var scope Scope
	for _, text := range texts {
		match := patternExpression.FindStringSubmatch(text)
		if match == nil {
			return nil, fmt.Errorf("%q is not host/path, such as github.com/acme/*", text)
		}
		file := strings.TrimSuffix(match[4], gitSuffix)
		if !isPlainPath(file) || strings.Contains(file[:max(0, len(file)-len(anyPath))], anyPath) || strings.HasSuffix(file, anyPath) && path.Base(file) != anyPath {
			return nil, fmt.Errorf("the path of %q has an empty part, . or .., or ** that is not its last part", text)
		}
		expression := strings.ReplaceAll(regexp.QuoteMeta(file), `\*\*`, `.+`)
		scope = append(scope, pattern{
			text: text, user: match[1], host: strings.ToLower(match[2]), port: match[3],
			path: regexp.MustCompile("^" + strings.ReplaceAll(expression, `\*`, `[^/]*`) + "$"),
		})
	}
	return scope, nil
}

// locate returns the location of a plain URL. Everything that servers or programs may decode, resolve or compare in another way is not
// plain: percent signs, dots that name a directory, empty parts, backslashes, queries, passwords, IPv6 addresses, and letters outside ASCII.
func locate(url string) (location, error) {
	l := location{}
	match := httpsExpression.FindStringSubmatch(url)
	if match == nil {
		l.isSSH = true
		if match = sshExpression.FindStringSubmatch(url); match == nil {
			match = scpExpression.FindStringSubmatch(url)
		}
	}
	if match == nil {
		return location{}, fmt.Errorf("%q is not https://host/path, ssh://user@host/path or user@host:path with only letters, digits and -._~+ in its path", url)
	}
	file := strings.TrimSuffix(match[4], "/")
	l.user, l.host, l.port, l.path = match[1], strings.ToLower(match[2]), match[3], strings.TrimSuffix(file, gitSuffix)
	if !isPlainPath(l.path) {
		return location{}, fmt.Errorf("an empty part, . or .. is in the path of %q", url)
	}
	if l.isSSH {
		l.url = url
		return l, nil
	}
	if l.port == "443" {
		l.port = ""
	}
	l.url = "https://" + l.authority() + "/" + file
	return l, nil
}

// authority is the host, with its port unless it is the default one.
func (l *location) authority() string {
	if l.port == "" {
		return l.host
	}
	return l.host + ":" + l.port
}

func isPlainPath(text string) bool {
	return !slices.ContainsFunc(strings.Split(text, "/"), func(part string) bool { return strings.Trim(part, ".") == "" })
}

// Refusal returns why sessions of a SessionRunner must not use a repository of this URL; empty if it can. A repository on a host without any credentials
// is cloned without them.
func (s Scope) Refusal(url, runner string) string {
	l, err := locate(url)
	if err != nil {
		return err.Error()
	}
	if s.contains(&l) {
		return ""
	}
	var others []string
	for i := range s {
		if s[i].host == l.host {
			others = append(others, s[i].text)
		}
	}
	if len(others) == 0 {
		return ""
	}
	missing := l.authority() + "/" + l.path
	if l.isSSH && l.user != defaultUser {
		missing = l.user + "@" + missing
	}
	return fmt.Sprintf("git.repositories of SessionRunner %s has only %s of this host: add %s there", runner, strings.Join(others, ", "), missing)
}

// grant returns where a repository that gets the credentials is; nil if it gets none. Its URL must be normalized.
func (s Scope) grant(url string) *location {
	if l, err := locate(url); err == nil && l.url == url && s.contains(&l) {
		return &l
	}
	return nil
}

// normalize returns the form of a URL that can get credentials; the same URL if it is not plain.
func normalize(url string) string {
	if l, err := locate(url); err == nil {
		return l.url
	}
	return url
}

func (s Scope) contains(l *location) bool {
	return slices.ContainsFunc(s, func(p pattern) bool { return p.contains(l) })
}

func (p *pattern) contains(l *location) bool {
	port, user := "443", ""
	if l.isSSH {
		port, user = "22", cmp.Or(p.user, defaultUser)
	}
	return p.host == l.host && user == l.user && cmp.Or(p.port, port) == cmp.Or(l.port, port) && p.path.MatchString(l.path)
}
