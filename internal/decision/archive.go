package decision

import (
	"cmp"
	"strings"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// defaultRegion is the region of a bucket that names none.
const defaultRegion = "us-east-1"

// BucketFlags returns the flags with which session-runner stores files in a bucket. The directory has the credentials.
func BucketFlags(s3 *v1alpha1.ArchiveS3, directory string) []string {
	return []string{
		"--endpoint=" + LiteralValue(s3.Endpoint), "--bucket=" + s3.Bucket, "--prefix=" + s3.Prefix,
		"--region=" + cmp.Or(s3.Region, defaultRegion), "--credentials=" + directory,
	}
}

// LiteralValue returns the value of a variable, or an argument, that Kubernetes does not expand: $(NAME) in it would become
// the value of another variable.
func LiteralValue(text string) string { return strings.ReplaceAll(text, "$", "$$") }
