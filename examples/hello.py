"""Was the state too small, or did the writer choose badly? A diagnosis in one expression, on the built-in model."""

import dssr

study = dssr.diagnose("demo", memories=["full", "summary", "guide"], budgets=[80], fillers=[0, 20], games=2)

print(study.frame("cells").select("memory", "budget", "filler", "success", "delta", "beta", "kappa"))
for answer in study.answers():
    print(answer.sentence)
print("page:", dssr.report(study).page)
