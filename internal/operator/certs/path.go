package certs

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// pathLifetime is the age at which a path segment is replaced. Error messages of the API server contain the path when a webhook
	// cannot be called, so it does not remain secret.
	pathLifetime = time.Hour
	// pathPropagation is the time in which every replica reads a new segment from the Secret. Only then is the segment written into
	// the webhook configurations.
	pathPropagation = 30 * time.Second
)

// pathSegments are the path segments that the webhook server accepts, newest first. Each segment begins with its creation time.
type pathSegments []string

// parsePathSegments omits segments that the operator did not create.
func parsePathSegments(text []byte) pathSegments {
	return slices.DeleteFunc(strings.Fields(string(text)), func(segment string) bool {
		return creationTime(segment).IsZero()
	})
}

func (p pathSegments) String() string { return strings.Join(p, " ") }

// creationTime returns the zero time for a segment without a creation time.
func creationTime(segment string) time.Time {
	prefix, _, _ := strings.Cut(segment, "-")
	seconds, err := strconv.ParseInt(prefix, 36, 64)
	if err != nil {
		return time.Time{}
	}
	return time.Unix(seconds, 0)
}

// rotate adds a segment if the newest is too old, and removes all but one of the previous segments.
func (p pathSegments) rotate(now time.Time, random string) pathSegments {
	if len(p) > 0 && now.Sub(creationTime(p[0])).Abs() < pathLifetime {
		return p
	}
	// The API server accepts lower-case letters, digits and hyphens only.
	created := strconv.FormatInt(now.Unix(), 36) + "-" + strings.ToLower(random)
	return append(pathSegments{created}, p[:min(len(p), 1)]...)
}

// inUse returns the segment for the webhook configurations, and the time until it changes or the segments must be rotated.
func (p pathSegments) inUse(now time.Time) (segment string, changesIn time.Duration) {
	age := now.Sub(creationTime(p[0])).Abs()
	if len(p) > 1 && age < pathPropagation {
		return p[1], pathPropagation - age
	}
	return p[0], max(pathLifetime-age, time.Second)
}
