// Package check tests what can be tested of a CronJob without a cluster:
// scripts/test-examples runs it.
package check

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

const manifest = "../kubernetes/cronjob.yaml"

// decode reads a manifest as a strict API server does: a field that the type
// does not have, and one that is there twice, is an error.
func decode(text []byte) (*batchv1.CronJob, error) {
	var c batchv1.CronJob
	return &c, yaml.UnmarshalStrict(text, &c)
}

func cronJob(t *testing.T) *batchv1.CronJob {
	t.Helper()
	text, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	c, err := decode(text)
	if err != nil {
		t.Fatalf("%s: %v", manifest, err)
	}
	return c
}

// container is the only one of the CronJob's Pod.
func container(t *testing.T, c *batchv1.CronJob) corev1.Container {
	t.Helper()
	all := c.Spec.JobTemplate.Spec.Template.Spec.Containers
	if len(all) != 1 {
		t.Fatalf("%d containers", len(all))
	}
	return all[0]
}

// flag is the value of --name=value among the arguments of oncectl.
func flag(t *testing.T, c corev1.Container, name string) string {
	t.Helper()
	own := c.Args[:slices.Index(c.Args, "--")]
	for _, arg := range own {
		if value, ok := strings.CutPrefix(arg, "--"+name+"="); ok {
			return value
		}
	}
	t.Fatalf("no --%s in %q", name, own)
	return ""
}

func duration(t *testing.T, c corev1.Container, name string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(flag(t, c, name))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestCronJob_WhenAFieldIsUnknown_IsRefused(t *testing.T) {
	text, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	cronJob(t)
	wrong := strings.Replace(string(text), "restartPolicy:", "restartPolicies:", 1)
	if _, err := decode([]byte(wrong)); err == nil {
		t.Error("restartPolicies was taken")
	}
}

// The limits must nest: each leaves what is inside of it the time to end and to
// be recorded.
func TestCronJob_EachLimitIsLongerThanTheOneInside(t *testing.T) {
	c := cronJob(t)
	job, pod := c.Spec.JobTemplate.Spec, c.Spec.JobTemplate.Spec.Template.Spec
	killAfter := duration(t, container(t, c), "kill-after")
	if grace := time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second; grace < killAfter+5*time.Second {
		t.Errorf("the grace of %v is too short for --kill-after %v", grace, killAfter)
	}
	one := duration(t, container(t, c), "wait") + duration(t, container(t, c), "timeout") + killAfter
	if all := time.Duration(*job.ActiveDeadlineSeconds) * time.Second; all < 2*one {
		t.Errorf("activeDeadlineSeconds %v leaves no time for a second Pod of %v", all, one)
	}
}

// What the API server asks of a podFailurePolicy beyond its type, and that it
// means what oncectl's flags say.
func TestCronJob_PodFailurePolicyFitsTheExitStatuses(t *testing.T) {
	c := cronJob(t)
	job := c.Spec.JobTemplate.Spec
	if p := job.Template.Spec.RestartPolicy; p != corev1.RestartPolicyNever {
		t.Errorf("restartPolicy %s does not go with a podFailurePolicy", p)
	}
	busy, err := strconv.Atoi(flag(t, container(t, c), "busy-exit"))
	if err != nil {
		t.Fatal(err)
	}
	got := map[int32]batchv1.PodFailurePolicyAction{}
	for _, rule := range job.PodFailurePolicy.Rules {
		on := rule.OnExitCodes
		if (on == nil) == (len(rule.OnPodConditions) == 0) {
			t.Fatalf("a rule needs exit codes or conditions: %+v", rule)
		}
		if on == nil {
			continue
		}
		if *on.ContainerName != container(t, c).Name || on.Operator != batchv1.PodFailurePolicyOnExitCodesOpIn {
			t.Errorf("rule %+v", on)
		}
		if !slices.IsSorted(on.Values) || slices.Contains(on.Values, 0) {
			t.Errorf("exit codes must be in order and not 0: %v", on.Values)
		}
		for _, v := range on.Values {
			got[v] = rule.Action
		}
	}
	ignore, fail := batchv1.PodFailurePolicyActionIgnore, batchv1.PodFailurePolicyActionFailJob
	want := map[int32]batchv1.PodFailurePolicyAction{int32(busy): ignore, 120: ignore, 124: fail, 126: fail, 127: fail}
	for v, action := range want {
		if got[v] != action {
			t.Errorf("exit status %d: %q, not %q", v, got[v], action)
		}
	}
	if len(got) != len(want) {
		t.Errorf("rules for %v", got)
	}
}

func TestCronJob_RunsHardened(t *testing.T) {
	c := cronJob(t)
	pod, own := c.Spec.JobTemplate.Spec.Template.Spec.SecurityContext, container(t, c).SecurityContext
	switch {
	case !*pod.RunAsNonRoot, *pod.RunAsUser != 65532:
		t.Error("may run as root")
	case !*own.ReadOnlyRootFilesystem:
		t.Error("its root can be written")
	case *own.AllowPrivilegeEscalation, !slices.Contains(own.Capabilities.Drop, "ALL"):
		t.Error("has privileges")
	}
}

// Pods of one Job do its work once; another Job, also one made by hand, does it
// again. The arguments are those of the manifest, but for the job's own path.
func TestCronJob_WhenAPodComesAgain_TheJobRunsOnce(t *testing.T) {
	binary, url := os.Getenv("ONCECTL_TEST_BINARY"), os.Getenv("ONCECTL_DATABASE_URL")
	if binary == "" || url == "" {
		t.Fatal("run me by scripts/test-examples")
	}
	dir := t.TempDir()
	job, secret, mark := filepath.Join(dir, "job"), filepath.Join(dir, "database-url"), filepath.Join(dir, "mark")
	write(t, job, "#!/bin/sh\necho ran >>'"+mark+"'\n")
	write(t, secret, url+"\n")

	c := container(t, cronJob(t))
	env := []string{"PATH=/usr/bin:/bin", "KUBERNETES_SERVICE_HOST=10.0.0.1", "ONCECTL_SCHEMA=" + os.Getenv("ONCECTL_SCHEMA")}
	jobName := ""
	for _, e := range c.Env {
		if e.Name == "ONCECTL_DATABASE_URL_FILE" {
			env = append(env, e.Name+"="+secret)
		}
		if e.ValueFrom != nil && e.ValueFrom.FieldRef.FieldPath == "metadata.labels['batch.kubernetes.io/job-name']" {
			jobName = "$(" + e.Name + ")" // as the kubelet knows it in args
		}
	}
	for i, pod := range []struct{ job, ran string }{{"digest-1", "ran\n"}, {"digest-1", "ran\n"}, {"digest-2", "ran\nran\n"}} {
		var args []string
		for _, arg := range c.Args {
			args = append(args, strings.ReplaceAll(arg, jobName, pod.job))
		}
		args[len(args)-1] = job
		cmd := exec.Command(binary, args...)
		cmd.Env = env
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Fatalf("Pod %d: %v\n%s", i+1, err, out)
		}
		if ran, err := os.ReadFile(mark); err != nil || string(ran) != pod.ran {
			t.Fatalf("after Pod %d of %s: %q, %v", i+1, pod.job, ran, err)
		}
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}
